"""The environment under check: how it is made, what is said to it, and what came of it.

A *script* is a list of assistant messages; *playing* one gives a transcript that holds all that can be observed. Checks
compare transcripts; they are in `accredit.envs.check` and its neighbours.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from gymnasium.envs.registration import EnvSpec

from accredit.credit import CallStatus

from .core import ToolEnv
from .task import SPLITS

__all__ = ["Broken", "Skipped", "Subject", "Transcript", "example_of", "first_difference", "play", "write_call"]

MAX_MESSAGES = 200
ANSWER = "I do not know."


class Broken(Exception):
    """The environment fails a check; the text is the evidence."""


class Skipped(Exception):
    """A check does not apply; the text says why."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """All that can be observed of an episode, in order: what `reset` gave, and each turn."""

    events: tuple[Any, ...]
    outcome: float | None
    stop: str | None
    statuses: tuple[tuple[str, CallStatus], ...]
    """Name and end of every call."""
    charges: int
    """How many charges there were."""


@dataclass(frozen=True)
class Subject:
    """An environment to check, with the seeds and settings to check it at."""

    name: str
    factory: Callable[..., ToolEnv]
    seeds: Sequence[int] = (0, 1, 2)
    settings: Mapping[str, Any] = field(default_factory=dict)
    reference: str | None = None
    """What another process can find it by, None if it cannot."""
    _scripts: dict[str, list[str]] = field(default_factory=dict, compare=False)

    def make(self, **settings: Any) -> ToolEnv:
        """Make a fresh instance."""
        env = self.factory(**{**self.settings, **settings})
        if env.spec is None:
            maker = cast(Any, self.factory)
            env.spec = EnvSpec(
                id=type(env).__name__,
                entry_point=maker,
                order_enforce=False,
                disable_env_checker=True,
                kwargs=dict(self.settings),
            )
        return env

    @property
    def has_expert(self) -> bool:
        """Whether the class has an expert of its own."""
        return type(self.make()).expert is not ToolEnv.expert

    def situations(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield every seed with every level and split."""
        levels = [{"level": level} for level in self.make().levels] or [{}]
        for level in levels:
            for split in SPLITS:
                for seed in self.seeds:
                    yield seed, {**level, "split": split}

    def openings(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the first seeds at every level, in the train split."""
        for seed, options in self.situations():
            if options["split"] == SPLITS[0] and seed in list(self.seeds)[:2]:
                yield seed, options

    def script(self, seed: int, options: Mapping[str, Any]) -> list[str]:
        """Return the expert's messages for a situation, or, without an expert, a call of each tool and an answer."""
        env = self.make()
        env.reset(seed=seed, options=options)
        return self.gold(seed, options) if self.has_expert else [*self.calls_of(env)[: env.max_turns - 1], ANSWER]

    def gold(self, seed: int, options: Mapping[str, Any]) -> list[str]:
        """Return the expert's messages.

        Raises:
            Skipped: the class has no expert.

        """
        if not self.has_expert:
            raise Skipped("the environment has no expert()")
        situation = f"{seed} {sorted(options.items())}"
        if situation in self._scripts:
            return list(self._scripts[situation])
        env = self.make()
        env.reset(seed=seed, options=options)
        said: list[str] = []
        for message in env.expert():
            said.append(message)
            env.step(message)
            if env.stop is not None or len(said) >= MAX_MESSAGES:
                break
        env.close()
        self._scripts[situation] = said
        return list(said)

    def calls_of(self, env: ToolEnv) -> list[str]:
        """Return a message for each tool that calls it with made-up arguments of the right types."""
        return [
            write_call(name, example_of(tool.schema.parameters, tool.schema.parameters), env.call_format)
            for name, tool in env.tools.items()
        ]


def play(env: ToolEnv, script: Sequence[str], seed: int | None, options: Mapping[str, Any]) -> Transcript:
    """Play a script from `reset` on, until it or the episode ends."""
    events: list[Any] = [env.reset(seed=seed, options=options), env.state_key()]
    return go_on(env, script, events)


def go_on(env: ToolEnv, script: Sequence[str], events: list[Any] | None = None) -> Transcript:
    """Play a script in a running episode."""
    events = [] if events is None else events
    statuses: list[tuple[str, CallStatus]] = []
    charges = 0
    for message in script:
        if env.stop is not None:
            break
        events.append(env.step(message))
        report = env.last_turn
        if report is not None:
            told = [(result.status, result.text, result.charges, dict(result.detail)) for result in report.results]
            events.append(told)
            charges += sum(len(result.charges) for result in report.results)
            statuses += [(report.parsed.calls[result.index].name, result.status) for result in report.results]
        events.append(env.state_key())
    return Transcript(tuple(events), env.outcome, None if env.stop is None else str(env.stop), tuple(statuses), charges)


def first_difference(one: Transcript, other: Transcript) -> str:
    """Say where two transcripts part, "" if nowhere."""
    for index, (a, b) in enumerate(zip(one.events, other.events, strict=False)):
        if a != b:
            return f"event {index}: {_short(a)} against {_short(b)}"
    if len(one.events) != len(other.events):
        return f"{len(one.events)} events against {len(other.events)}"
    return ""


def write_call(name: str, arguments: Mapping[str, Any], call_format: str = "hermes") -> str:
    """Write a call as the model would.

    Raises:
        Skipped: the checker cannot write this format.

    """
    if call_format != "hermes":
        raise Skipped(f"the checker cannot write calls in the format '{call_format}'")
    return f"<tool_call>{json.dumps({'name': name, 'arguments': dict(arguments)})}</tool_call>"


def example_of(schema: Mapping[str, Any], root: Mapping[str, Any], text: str = "apple", whole: bool = False) -> Any:
    """Return a small value that fits a JSON schema; texts are `text`, and `whole` gives optional members too."""
    if "$ref" in schema:
        return example_of(root["$defs"][str(schema["$ref"]).rsplit("/", 1)[1]], root, text, whole)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return example_of(schema[key][0], root, text, whole)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        members, needed = schema.get("properties", {}), schema.get("required", ())
        return {name: example_of(part, root, text, whole) for name, part in members.items() if whole or name in needed}
    if kind == "array":
        items = schema.get("prefixItems") or [schema.get("items", {})] * int(schema.get("minItems", 1))
        return [example_of(item, root, text, whole) for item in items]
    if kind in ("integer", "number"):
        lowest = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return min(lowest, schema.get("maximum", lowest))
    return {"boolean": True, "null": None}.get(str(kind), text)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
