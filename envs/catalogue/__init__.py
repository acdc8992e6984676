"""Procedurally generated environments with exact checkers and scripted experts.

Registered by name; an environment's own module is imported when it is made.
"""

from accredit.envs.registry import register

register(
    "Shop-v0",
    "accredit.envs.catalogue.shop:Shop",
    "Serve customers of a small shop by its rules, over a database (levels easy, medium, hard).",
)
register(
    "Arithmetic-v0",
    "accredit.envs.catalogue.arithmetic:Arithmetic",
    "Expressions and word problems with a calculator (levels easy, medium, hard).",
)
register(
    "Chain-v0",
    "accredit.envs.catalogue.chain:Chain",
    "A long process with luck and idle turns whose values are known exactly (levels easy, medium, hard).",
)
register(
    "Symbols-v0",
    "accredit.envs.catalogue.symbols:Symbols",
    "Choices that pay at once beside coins that pay as much: luck to be told from skill (levels easy, medium, hard).",
)
register(
    "PythonMath-v0",
    "accredit.envs.catalogue.python_math:PythonMath",
    "Number problems solved by writing Python in a sandbox (levels easy, medium, hard).",
)
register(
    "SQL-v0",
    "accredit.envs.catalogue.sql:SQL",
    "Questions about a small database, answered by a query (levels easy, medium, hard).",
)
register(
    "Python-v0",
    "accredit.envs.catalogue.python:Python",
    "Functions written against hidden tests, run in a sandbox (levels easy, medium, hard).",
)
register(
    "PythonRepl-v0",
    "accredit.envs.catalogue.python_repl:PythonRepl",
    "Questions on small tables, answered with a live Python interpreter (levels easy, medium, hard).",
)
register(
    "Shell-v0",
    "accredit.envs.catalogue.shell:Shell",
    "Find, edit and fix files of a small project with shell commands, in a sandbox (levels easy, medium, hard).",
)
