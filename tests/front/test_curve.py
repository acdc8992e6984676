"""The learning curve shows every point that it is given."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from accredit.curve import Curve, draw


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Curve], Figure]:
    kept: list[Figure] = []

    def keep(figure: Figure, path: Path) -> None:
        kept.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)

    def figure_of(curve: Curve) -> Figure:
        draw(curve, tmp_path / "curve.png", "a run")
        return kept[-1]

    return figure_of


def test_rewards_outside_0_and_1_stay_in_sight(drawn: Callable[[Curve], Figure]) -> None:
    left = drawn(Curve([(0, 0.1, 0.0, 0.2)], [(1, 1.7, 0.1), (2, -0.5, 0.1)])).axes[0]
    assert left.get_ylim() == (-0.5, 1.7)
    assert drawn(Curve([(0, 0.1, 0.0, 0.2)], [(1, 0.7, 0.1)])).axes[0].get_ylim() == (0, 1)


def test_a_run_without_a_point_is_drawn_without_a_warning(drawn: Callable[[Curve], Figure]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not drawn(Curve([], [])).axes[0].lines
