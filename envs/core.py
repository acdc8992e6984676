"""ToolEnv: a Gymnasium environment whose action is the assistant's message and whose observation is the new messages.

An author writes `tasks` (or `draw_task`), tools, and `reward`; state goes into `self.state`, randomness comes from
`self.rng`. This module knows nothing of tokens (see `accredit.envs.recorder`) and holds no state outside its instances.

Words: an *episode* is what lies between `reset` and the end; a *turn* is one message of the model and what it caused.
"""

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np

from accredit.credit import CallStatus, StopReason
from accredit.sandboxes.errors import SandboxError

from .calls import parse_calls
from .choosing import choose_task
from .errors import EnvError, InfrastructureError
from .execution import LoopThread
from .forking import fork_of
from .hooks import run_hook, score
from .messages import Message, ToolSchema
from .options import check_settings, read_options
from .results import CharCharge, TurnReport
from .spaces import MessageSpace, MessagesSpace
from .state import canonical_json, fingerprint
from .task import SPLITS, Split, Task
from .tools import Tool, collect_tools
from .turns import current_call, run_calls, value_range

__all__ = ["ToolEnv"]


class ToolEnv(gymnasium.Env[tuple[Message, ...], str]):
    """An environment with tools. Subclass it; the methods named below are yours to write.

    Settings (class attributes; the same names are keyword arguments of the constructor):
        system: text of the system message, "" for none.
        max_turns: turns after which the episode is cut off.
        max_calls: tool calls that an episode may make, None for any number; further ones are refused and end it.
        charge: amount of the charge for a failed call, in units of reward; 0 charges nothing.
        charges: amounts by `CallStatus`, where they differ from `charge`.
        repair_charge: amount of the charge for a call that ran after being repaired.
        call_format: the format in which the model writes calls.
        levels: names of difficulty levels, the default first; () for none.
        hook_timeout_s: seconds that drawing a task with `setup`, or `reward`, may take; None for no limit.
        shared: names of attributes that forks share instead of copying (large data that is only read).
        own_splits: True if `tasks` or `draw_task` look at `self.split` themselves.
        luck_spoils: True where luck alone may spoil a perfect episode, so that the expert need not always win.
        option_names: names of further options of `reset`, which the hooks read in `self.options`.

    What an episode has: `task`, `state`, `rng`, `answer`, `finished` (a tool may set it), `turn` (turns taken),
    `split`, `level`, `options`, `last_results`, `last_turn`, `stop`, and `outcome` (None until the end, and None when
    unscored).
    """

    system: str = ""
    max_turns: int = 8
    max_calls: int | None = None
    charge: float = 0.1
    charges: Mapping[str, float] = {}
    repair_charge: float = 0.0
    call_format: str = "hermes"
    levels: tuple[str, ...] = ()
    hook_timeout_s: float | None = 60.0
    shared: tuple[str, ...] = ()
    own_splits: bool = False
    luck_spoils: bool = False
    option_names: tuple[str, ...] = ()

    task: Task
    state: Any
    rng: np.random.Generator
    answer: str
    finished: bool
    turn: int
    calls: int
    split: str
    level: str
    options: Mapping[str, Any]
    last_results: list[str]
    last_turn: TurnReport | None
    stop: StopReason | None
    outcome: float | None
    started_at: float
    tools: dict[str, Tool]

    _started: bool
    _loop: LoopThread | None
    _left: list[tuple[str, threading.Thread]]
    task_lists: dict[str, Split]
    _class_tools: ClassVar[dict[str, Tool]] = {}
    _unread: ClassVar[NameError | None] = None
    _RUNTIME: ClassVar[tuple[str, ...]] = ("_loop", "_left", "spec", "tools", "task_lists")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._read_tools()
        if callable(vars(cls).get("task")):
            raise EnvError(f"{cls.__name__}.task is a method, but self.task is the episode's Task: name it draw_task")

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Make an instance that is whole even if a subclass's `__init__` forgets to call ours."""
        if cls._unread is not None:
            cls._read_tools(final=True)
        self = super().__new__(cls)
        self.action_space = MessageSpace()
        self.observation_space = MessagesSpace()
        self.tools = dict(cls._class_tools)
        self.split, self.level = SPLITS[0], next(iter(cls.levels), "")
        self.turn = self.calls = 0
        self.state, self.options, self.answer, self.finished = None, {}, "", False
        self.last_results, self.last_turn, self.stop, self.outcome = [], None, None, None
        self._started = False
        self._loop, self._left, self.task_lists = None, [], {}
        return self

    def __init__(
        self,
        *,
        system: str | None = None,
        max_turns: int | None = None,
        max_calls: int | None = None,
        charge: float | None = None,
        charges: Mapping[str, float] | None = None,
        repair_charge: float | None = None,
        call_format: str | None = None,
        split: str | None = None,
        level: str | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)
        check_settings(self)

    # What an author writes

    def tasks(self, rng: np.random.Generator) -> Sequence[Task]:
        """Return all tasks. `rng` is the same for every seed and instance: a generated list is the same list."""
        raise NotImplementedError

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Return a task drawn from `rng` alone (instead of `tasks`, where there are too many to list)."""
        raise NotImplementedError

    def setup(self) -> None:
        """Build `self.state` from `self.task` and `self.rng`."""

    def reward(self) -> float:
        """Return the episode's reward. Called once, at its end."""
        raise NotImplementedError

    def opening(self) -> tuple[Message, ...]:
        """Return the messages that an episode begins with: the system message, if any, and the task's prompt."""
        system = (Message("system", self.system),) if self.system else ()
        return (*system, Message("user", self.task.prompt))

    def reply(self) -> str | None:
        """Return what the user says to `self.answer`, None (default) to end the episode with it."""
        return None

    def expert(self) -> Iterator[str]:
        """Yield the messages of a perfect episode; after each yield the environment has been stepped with it."""
        raise NotImplementedError

    def luck_reward(self) -> float:
        """Return the part of `reward()` that luck alone gave or took; 0 (default) where luck at most spoils.

        Only the checker asks for it, to tell full marks from good luck.
        """
        return 0.0

    def state_key(self) -> str | None:
        """Return a key that is equal for equal states: a hash of `self.state`'s content, None without state.

        It must cover all that future reward depends on.

        Raises:
            EnvError: the state holds something without comparable content.

        """
        if self.state is None:
            return None
        return fingerprint(canonical_json([self.state, bool(self.finished)], f"{type(self).__name__}.state"))

    # What Gymnasium and rollouts call

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """What the model is told of the tools, in order."""
        return tuple(tool.schema for tool in self.tools.values())

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Message, ...], dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: fixes task and luck, in every instance, thread and process. None goes on with the environment's own
                randomness.
            options: "split" ("train" or "heldout"), "level" (one of `levels`), "luck" (an integer: other luck for the
                same task and the same beginning), "task" (a `Task` to play), "index" (of a task in the split's list),
                and the names in `option_names`.

        Returns:
            The first messages, and info: task_id, split, level, and split_shared (the list was too short to divide).

        Raises:
            EnvError: an option is unknown, a hook failed, or a timed-out tool still runs in this instance.

        """
        self._refuse_left_behind("reset")
        super().reset(seed=seed)
        chosen = read_options(self, dict(options or {}))
        self.options = chosen
        self.split, self.level = chosen.get("split", self.split), chosen.get("level", self.level)
        self.turn = self.calls = 0
        self.state, self.answer, self.finished = None, "", False
        self.last_results, self.last_turn, self.stop, self.outcome = [], None, None, None
        self._started = False
        self.started_at = time.monotonic()
        shared = run_hook(self, "setup", self._begin)
        self._started = True
        info = {"task_id": self.task.key, "split": self.split, "level": self.level, "split_shared": shared}
        return self.opening(), info

    def step(self, action: str) -> tuple[tuple[Message, ...], float, bool, bool, dict[str, Any]]:
        """Take the assistant's message. A message without calls is the answer, and ends the episode.

        Returns:
            New messages, reward (0 before the end), terminated, truncated, and info: turn, stop (why it ended, or None)
            and unscored (True where infrastructure failed: the reward 0 is then no score).

        Raises:
            EnvError: no episode is running, or the environment is wrongly written. Never for what the model wrote.

        """
        self._check_running(action)
        parsed = parse_calls(action, self.call_format)
        left = None if self.max_calls is None else max(self.max_calls - self.calls, 0)
        results = run_calls(self, parsed, left)
        self.turn += 1
        self.calls += len(parsed.calls)
        self.last_turn = TurnReport(parsed, results)
        self.last_results = [result.text for result in results]
        messages = tuple(
            Message("tool", result.text, call.name or None, call.id)
            for call, result in zip(parsed.calls, results, strict=True)
        )
        if not parsed.calls:
            self.answer = parsed.content
            said = None if type(self).reply is ToolEnv.reply else run_hook(self, "reply", self.reply)
            messages = () if said is None else (Message("user", said),)
            self.finished = self.finished or said is None
        stop = self._why_stop([result.status for result in results], left)
        if stop is not None:
            self._end(stop)
        stop = self.stop
        info = {"turn": self.turn, "stop": None if stop is None else str(stop)}
        info["unscored"] = stop is not None and self.outcome is None
        ended = stop is not None
        return messages, self.outcome or 0.0, stop is StopReason.DONE, ended and stop is not StopReason.DONE, info

    def fork(self, seed: int | None = None) -> Self:
        """Return an independent copy of this episode at this turn border: task, state, counters, limits and luck.

        Args:
            seed: other luck from here on, an integer of at least 0: every generator that the copy reaches is re-seeded.
                None keeps the luck, so that the same messages give the same results.

        Raises:
            EnvError: called inside a tool, a timed-out tool still runs, an attribute cannot be copied, or the seed is
                negative.

        """
        self._refuse_left_behind("fork")
        running = current_call()
        if running is not None and running.env is self:
            raise EnvError(f"{type(self).__name__}.fork() inside a tool: fork between turns")
        clone = fork_of(self, (*self._RUNTIME, *self.shared), seed)
        clone._loop, clone._left, clone.tools = None, [], dict(self.tools)
        return clone

    def end(self, stop: StopReason) -> float | None:
        """End the running episode from outside, at a limit that the environment does not know; return its outcome.

        Raises:
            EnvError: no episode is running, or `reward` is wrongly written.

        """
        self._check_running("")
        self._end(stop)
        return self.outcome

    def charge_now(self, amount: float, reason: str, argument: str | None = None) -> None:
        """Charge the call that is running, from inside its tool, though the call itself may succeed.

        Args:
            amount: above 0, in units of reward.
            reason: a short name; it becomes a term of the ledger.
            argument: parameter whose value is charged instead of the whole call.

        Raises:
            EnvError: no tool of this environment is running, or the amount is not above 0.

        """
        running = current_call()
        if running is None or running.env is not self:
            raise EnvError(f"charge_now('{reason}') outside of a tool of this environment: call it inside one")
        if not (math.isfinite(amount) and amount > 0):
            raise EnvError(f"charge_now('{reason}') needs a finite amount above 0, found {amount}")
        call = running.call
        start, end = (call.start, call.end) if argument is None else value_range(call, f"$.{argument}")
        running.declared.append(CharCharge(start, end, float(amount), reason))

    def add_tool(self, tool: Tool) -> None:
        """Give this instance a tool that is no method of its class (a server's, an adapter's)."""
        if tool.name in self.tools:
            raise EnvError(f"{type(self).__name__} already has a tool '{tool.name}': give this one another name")
        self.tools[tool.name] = tool

    def close(self) -> None:
        """Stop the private event loop. May be called more than once."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    # What the rest of the room calls

    @property
    def is_procedural(self) -> bool:
        """Whether tasks are drawn instead of listed."""
        return type(self).draw_task is not ToolEnv.draw_task

    def amount_of(self, status: CallStatus, tool: Tool | None) -> float:
        """Return the amount of the charge for a call that ended with `status`; 0 for no charge."""
        if status is CallStatus.REPAIRED:
            return self.charges.get(str(status), self.repair_charge)
        if not status.is_model_fault:
            return 0.0
        if tool is not None and tool.options.charge is not None:
            return tool.options.charge
        return self.charges.get(str(status), self.charge)

    def private_loop(self) -> LoopThread:
        """Return the event loop of this instance's async tools; a loop that a tool blocks is replaced."""
        blocked = any(thread is self._loop.thread for _, thread in self._left) if self._loop else False
        if self._loop is None or blocked:
            self._loop = LoopThread(type(self).__name__)
        return self._loop

    def leave_behind(self, tool: str, thread: threading.Thread) -> None:
        """Note a thread whose tool ran past its time: until it ends, this instance is neither reset nor forked."""
        self._left.append((tool, thread))

    @property
    def left_behind(self) -> tuple[str, ...]:
        """Names of tools that ran past their time and still run in a thread of this instance."""
        self._left = [(tool, thread) for tool, thread in self._left if thread.is_alive()]
        return tuple(tool for tool, _ in self._left)

    # Inside

    @staticmethod
    def _reserved() -> frozenset[str]:
        return frozenset((*dir(ToolEnv), *ToolEnv.__annotations__))

    @classmethod
    def _read_tools(cls, final: bool = False) -> None:
        inherited: dict[str, Tool] = {}
        for base in reversed(cls.__mro__[1:]):
            inherited.update(vars(base).get("_class_tools", {}))
        try:
            cls._class_tools, cls._unread = collect_tools(cls, inherited, cls._reserved()), None
        except NameError as error:
            if final:
                raise EnvError(f"a tool of {cls.__name__} has a type hint that is not defined: {error}") from error
            cls._unread = error

    @classmethod
    def check_class(cls) -> None:
        """Raise `EnvError` unless the class has tasks, a reward, and tools that can be told to a model."""
        if cls._unread is not None:
            cls._read_tools(final=True)
        if cls.tasks is ToolEnv.tasks and cls.draw_task is ToolEnv.draw_task:
            raise EnvError(f"{cls.__name__} has no tasks: write `def tasks(self, rng)` that returns a list of Task")
        if cls.reward is ToolEnv.reward:
            raise EnvError(f"{cls.__name__} has no reward: write `def reward(self) -> float`")

    def _begin(self) -> bool:
        self.rng = self.np_random
        self.task, shared = choose_task(self)
        self.setup()
        luck = [int(word) for word in self.np_random.integers(0, 2**32, 4)]
        self.rng = np.random.default_rng([*luck, int(self.options.get("luck", 0))])
        return shared

    def _check_running(self, action: Any) -> None:
        name = type(self).__name__
        if not self._started:
            raise EnvError(f"{name}.step() before reset(): call reset(seed=...) first")
        if self.stop is not None:
            raise EnvError(f"{name}.step() after the episode ended ({self.stop}): call reset()")
        if not isinstance(action, str):
            raise EnvError(f"{name}.step() takes the assistant's message as text, found a {type(action).__name__}")

    def _why_stop(self, statuses: Sequence[CallStatus], calls_left: int | None) -> StopReason | None:
        if CallStatus.INFRASTRUCTURE in statuses:
            return StopReason.INFRASTRUCTURE
        if self.finished:
            return StopReason.DONE
        if calls_left is not None and len(statuses) > calls_left:
            return StopReason.CALL_LIMIT
        return StopReason.TURN_LIMIT if self.turn >= self.max_turns else None

    def _end(self, stop: StopReason) -> None:
        self.stop = stop
        if stop is StopReason.INFRASTRUCTURE:
            return
        try:
            self.outcome = score(self)
        except (InfrastructureError, SandboxError):
            self.stop = StopReason.INFRASTRUCTURE

    def _refuse_left_behind(self, what: str) -> None:
        if self.left_behind:
            raise EnvError(
                f"{type(self).__name__}.{what}(): {', '.join(self.left_behind)} ran past its time and still runs in a "
                "thread that cannot be stopped: make a new instance"
            )
