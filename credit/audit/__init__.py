"""The audit: every credit function against the axioms, the exact gradient, and known tables.

    from accredit.credit.audit import audit, to_markdown
    print(to_markdown(audit({"mine": lambda process: my_function})))

The command `accredit audit` prints the same.
"""

from .functions import MAINSTREAM, OMITTED, Make, audited_functions, make_for
from .probe import Probe, probe
from .report import Audit, AuditSettings, FunctionAudit, audit
from .signals import CHAIN_TABLE, ChainRow, Signals, chain_table, measure_signals
from .text import TextTable, notes, to_json, to_markdown, to_tables
from .two_turn import LITERATURE, TwoTurnFigures, literature_table, two_turn_figures

__all__ = [
    "CHAIN_TABLE",
    "LITERATURE",
    "MAINSTREAM",
    "OMITTED",
    "Audit",
    "AuditSettings",
    "ChainRow",
    "FunctionAudit",
    "Make",
    "Probe",
    "Signals",
    "TextTable",
    "TwoTurnFigures",
    "audit",
    "audited_functions",
    "chain_table",
    "literature_table",
    "make_for",
    "measure_signals",
    "notes",
    "probe",
    "to_json",
    "to_markdown",
    "to_tables",
    "two_turn_figures",
]
