"""The audit as a whole, and as text."""

import json

import pytest

from accredit.credit import Credit, CreditError, Group
from accredit.credit.audit import (
    MAINSTREAM,
    OMITTED,
    AuditSettings,
    audit,
    audited_functions,
    make_for,
    notes,
    to_json,
    to_markdown,
    to_tables,
)
from accredit.credit.axioms import Axiom
from accredit.credit.functions import CREDIT_FUNCTIONS

NAMES = ("exact", "grpo", "rloo", "gae skipped")


@pytest.fixture(scope="module")
def found():
    known = audited_functions()
    return audit({name: known[name] for name in NAMES}, AuditSettings.quick())


def test_every_registered_function_is_audited_or_its_absence_explained():
    names = set(audited_functions())
    missing = {name for name in CREDIT_FUNCTIONS if not any(one.startswith(name) for one in names)}
    assert missing == set(OMITTED)
    assert set(MAINSTREAM) <= names


def test_exact_credit_keeps_all_axioms_and_grpo_does_not(found):
    assert found.keeps("exact") and not found.keeps("grpo")
    assert max(residual.value or 0.0 for residual in found.functions[0].credit) < 1e-9


def test_axioms_that_no_mainstream_method_keeps_are_named(found):
    assert Axiom.CAUSALITY in found.broken_by_all_mainstream
    assert Axiom.COMPLETENESS not in found.broken_by_all_mainstream  # rloo keeps it
    assert any("too strong" in note for note in notes(found))


def test_tables_have_a_cell_for_every_column(found):
    for table in to_tables(found):
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows)


def test_markdown_names_every_function_and_table(found):
    page = to_markdown(found)
    assert all(f"\n| {name} |" in page for name in NAMES)
    assert all(f"\n## {table.title}\n" in page for table in to_tables(found))


def test_json_holds_the_witness_of_every_broken_axiom(found):
    read = json.loads(to_json(found))
    by_name = {one["name"]: one for one in read["functions"]}
    assert list(by_name) == list(NAMES)
    broken = by_name["grpo"]["credit"]["causality"]
    assert broken["holds"] is False and broken["witness"]["token_ids"] and broken["witness"]["token"] is not None
    assert by_name["exact"]["credit"]["completeness"]["holds"] is True
    assert read["tolerance"] == 0.01


def test_progress_comes_to_its_end():
    heard: list[tuple[int, int]] = []
    audit({"exact": make_for("exact")}, AuditSettings.quick(), lambda done, total, what: heard.append((done, total)))
    assert [done for done, _ in heard] == list(range(heard[-1][1] + 1))


def test_a_function_that_fails_is_named():
    def broken(group: Group, /) -> tuple[Credit, ...]:
        raise KeyError("spread")

    with pytest.raises(CreditError, match=r"audit of 'mine': it failed with KeyError: 'spread'"):
        audit({"mine": lambda process: broken}, AuditSettings.quick())


def test_a_tolerance_of_nothing_is_refused():
    with pytest.raises(CreditError, match="expected a number above 0"):
        AuditSettings(tolerance=0.0)
