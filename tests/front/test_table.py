import pytest

from accredit.table import print_table


def test_off_a_terminal_columns_are_aligned_and_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "what"], [["a", "x" * 300], ["longer", "[bold]y"]])
    assert capsys.readouterr().out == f"name    what\na       {'x' * 300}\nlonger  [bold]y\n"


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "what"], [])
    assert capsys.readouterr().out == "name  what\n"


def test_on_a_terminal_markup_in_a_cell_is_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(["name"], [["[bold]y[/bold]"]])
    assert "[bold]y[/bold]" in capsys.readouterr().out
