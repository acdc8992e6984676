"""The Shop environment: tools over the episode's database, and the final check of its books.

What breaks a rule is written like anything else and shows only in the reward; what cannot be done fails at once and is
charged. Reads change nothing and cost nothing but a turn.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from accredit.envs.core import ToolEnv
from accredit.envs.errors import EnvError
from accredit.envs.state import fingerprint
from accredit.envs.task import Task
from accredit.envs.tools import tool

from .database import ShopDatabase
from .expert import Script
from .rules import all_closed, expected_books, policy_text
from .tasks import LEVELS, ShopTask, draw_task, identity
from .world import World

__all__ = ["Shop"]

_MAX_TURNS = {"easy": 8, "medium": 18, "hard": 40}
_LATER_TOOLS = {
    "easy": ("remove", "approve", "history", "refund"),
    "medium": ("remove", "history", "refund"),
    "hard": (),
}


class Shop(ToolEnv):
    """Serve customers of a small shop by its rules; the reward is 1 if the books are exactly right at the end, else 0.

    Levels: "easy" (3 to 5 turns), "medium" (6 to 12), "hard" (12 to 30). Harder levels have more rules and tools.
    """

    levels = tuple(LEVELS)
    hook_timeout_s = None

    state: ShopDatabase
    _world: World

    def __init__(self, *, system: str | None = None, max_turns: int | None = None, **settings: Any) -> None:
        super().__init__(system=system, max_turns=max_turns, **settings)
        self._own_text, self._own_turns = system, max_turns
        self._offer_tools()

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Draw a task of the level in force."""
        drawn = draw_task(rng, self.level)
        return Task(drawn.prompt, id=identity(drawn.requests), data={"drawn": drawn})

    def setup(self) -> None:
        """Fill the database."""
        drawn = self._drawn
        self.system = policy_text(drawn.level) if self._own_text is None else self._own_text
        self.max_turns = _MAX_TURNS[drawn.level] if self._own_turns is None else self._own_turns
        self._offer_tools()
        self._world = drawn.make_world()
        self.state = ShopDatabase(self._world, drawn.requests)

    @tool(timeout_s=None)
    def customer(self, name: str) -> dict[str, Any]:
        """Look up a customer."""
        return self.state.customer(name)

    @tool(timeout_s=None)
    def find(self, item: str) -> dict[str, Any]:
        """Look up an item."""
        return self.state.find(item)

    @tool(timeout_s=None)
    def add(self, sku: str, qty: int) -> str | dict[str, str]:
        """Add to the cart."""
        note = self.state.add(sku, qty)
        return "ok" if note is None else {"note": note}

    @tool(timeout_s=None)
    def remove(self, sku: str) -> None:
        """Take out of the cart."""
        self.state.remove(sku)

    @tool(timeout_s=None)
    def coupon(self, code: str) -> None:
        """Use a code for the cart."""
        self.state.coupon(code)

    @tool(timeout_s=None)
    def approve(self) -> None:
        """Approve the cart."""
        self.state.approve()

    @tool(timeout_s=None)
    def checkout(self, name: str, ship: Literal["fast", "slow"]) -> dict[str, int]:
        """Order the cart."""
        total = self.state.checkout(name, ship)
        self._close()
        return {"total": total}

    @tool(timeout_s=None)
    def refuse(self, item: str) -> None:
        """Refuse an item."""
        self.state.refuse(item)
        self._close()

    @tool(timeout_s=None)
    def history(self, name: str) -> list[dict[str, Any]]:
        """List past purchases."""
        return self.state.history(name)

    @tool(timeout_s=None)
    def refund(self, name: str, sku: str, qty: int) -> None:
        """Pay back a purchase."""
        self.state.refund(name, sku, qty)
        self._close()

    def reward(self) -> float:
        """Return 1 if the books are what the rules make of the requests, nothing less and nothing more."""
        return float(self.state.books() == expected_books(self._world, self._drawn.requests))

    def state_key(self) -> str:
        """Return a hash of the task and of all that calls can change: cart, orders, refusals, refunds, notes, end."""
        drawn = self._drawn
        return fingerprint(f"{self.task.key} {drawn.world_seed} {self.state.canonical()} {self.finished}")

    def expert(self) -> Iterator[str]:
        """Serve by the rules, reading the results."""
        return iter(Script(self._drawn.requests, self._read, approvals=self._approvals))

    def sloppy(self, rng: np.random.Generator, error_rate: float) -> Iterator[str]:
        """Serve with the expert's hand, but go against the rule at each decision with probability `error_rate`."""

        def right() -> bool:
            return bool(rng.random() >= error_rate)

        return iter(Script(self._drawn.requests, self._read, right, approvals=self._approvals))

    @property
    def _drawn(self) -> ShopTask:
        drawn = self.task.data.get("drawn")
        if not isinstance(drawn, ShopTask):
            raise EnvError(f"task {self.task.id!r} was not drawn by Shop: pass a task of Shop.draw_task(rng)")
        return drawn

    @property
    def _approvals(self) -> bool:
        return "approve" in self.tools

    def _offer_tools(self) -> None:
        """Offer the tools that the level needs, and those that were added to this instance."""
        own = {name: tool for name, tool in self._class_tools.items() if name not in _LATER_TOOLS[self.level]}
        self.tools = {**own, **{name: tool for name, tool in self.tools.items() if name not in self._class_tools}}

    def _read(self) -> Any:
        text = self.last_results[-1]
        return json.loads(text) if text[0] in "{[" else text

    def _close(self) -> None:
        self.finished = all_closed(self._world, self._drawn.requests, self.state.books())
