"""`accredit envs`: what is registered."""

from accredit.envs.registry import registered
from accredit.table import print_table

__all__ = ["command"]


def command() -> None:
    """List the registered environments."""
    print_table(
        ["environment", "description"], [[line.id.removeprefix("accredit/"), line.description] for line in registered()]
    )
