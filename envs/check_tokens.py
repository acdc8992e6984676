"""Checks at the level of tokens: what `RecordCredit` writes under unlike tokenizers."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit import SpanKind, StopReason, Trajectory

from .recorder import Decision, RecordCredit
from .rendering import Renderer
from .results import TurnReport
from .subject import Broken, Subject, play

__all__ = ["built_in_renderers", "masks_hold"]


class _Turn(NamedTuple):
    ids: NDArray[np.int32]
    message: str
    report: TurnReport | None


def built_in_renderers() -> dict[str, Renderer]:
    """Return ChatML renderers over two unlike tokenizers that are built in memory."""
    from .chatml import ChatMLRenderer
    from .tinytokenizers import byte_fallback, byte_level

    return {
        "byte-level": ChatMLRenderer(byte_level()),
        "byte-fallback": ChatMLRenderer(byte_fallback(), tools_format="signature"),
    }


def masks_hold(subject: Subject, renderers: Mapping[str, Renderer]) -> str:
    """Check that sampled ids alone are decisions, charges stay on them, and text and token level agree."""
    tokens = episodes = 0
    for name, renderer in renderers.items():
        for seed, options in subject.openings():
            env = subject.make()
            env.reset(seed=seed, options=options)
            bad = ["<tool_call>{broken</tool_call>", *subject.calls_of(env)[:2]][: max(env.max_turns - 1, 1)]
            for script in (subject.script(seed, options), bad):
                where = f"{name}, seed {seed} {options}"
                trajectory, turns = _record(subject, renderer, script, seed, options, where)
                _check(trajectory, [turn.ids for turn in turns], where)
                _check_places(trajectory, turns, renderer, where)
                told = play(subject.make(), script, seed, options)
                texts = [status for _, status in told.statuses]
                if [call.status for call in trajectory.calls] != texts or len(trajectory.charges) != told.charges:
                    raise Broken(f"{where}: calls or charges are not those of the text level")
                if told.stop is not None and trajectory.outcome != told.outcome:
                    raise Broken(f"{where}: the outcome is {trajectory.outcome}, at the text level {told.outcome}")
                tokens, episodes = tokens + len(trajectory), episodes + 1
    return f"{episodes} trajectories, {tokens} tokens under {', '.join(renderers)}"


def _record(
    subject: Subject, renderer: Renderer, script: list[str], seed: int, options: dict[str, str], where: str
) -> tuple[Trajectory, list[_Turn]]:
    env = RecordCredit(subject.make(), renderer)
    context, _ = env.reset(seed=seed, options=dict(options))
    turns: list[_Turn] = []
    for message in script:
        ids = np.asarray(renderer.encode(message), dtype=np.int32)
        logprobs = -np.linspace(0.1, 1.0, ids.size, dtype=np.float32)
        before = env.context
        if not np.array_equal(before, context):
            raise Broken(f"{where}: the policy's context is not what it was given")
        added, _, terminated, truncated, info = env.step(Decision(ids, logprobs))
        turns.append(_Turn(ids, message, env.tool_env.last_turn))
        if terminated or truncated:
            break
        context = added if "segment" in info else np.concatenate([before, ids, added])
    trajectory = env.trajectory or env.finish(StopReason.CANCELLED)
    return trajectory, turns


def _check(trajectory: Trajectory, sampled: list[NDArray[np.int32]], where: str) -> None:
    mask_T, ids_T = trajectory.credit_mask, trajectory.token_ids
    decided = np.concatenate(sampled) if sampled else np.zeros(0, dtype=np.int32)
    if not np.array_equal(ids_T[mask_T], decided):
        raise Broken(f"{where}: the decision tokens are not the {decided.size} sampled ids ({int(mask_T.sum())} found)")
    if bool(np.isfinite(trajectory.logprobs[~mask_T]).any()):
        raise Broken(f"{where}: a token that nobody sampled has a log-probability")
    if sum(len(span) for span in trajectory.spans) != len(trajectory):
        raise Broken(f"{where}: the spans do not cover the trajectory")
    value_T = trajectory.value_mask
    feedback = sum(len(span) for span in trajectory.spans if span.kind is SpanKind.FEEDBACK)
    if int(value_T.sum()) != int(mask_T.sum()) + feedback:
        raise Broken(f"{where}: the value mask is not decisions and feedback")
    for call in trajectory.calls:
        if not bool(mask_T[call.start : call.end].all()) or call.start >= call.end:
            raise Broken(f"{where}: call {call.name} [{call.start}, {call.end}) leaves its decision")
    for charge in trajectory.charges:
        inside = charge.call is not None and (
            trajectory.calls[charge.call].start <= charge.start and charge.end <= trajectory.calls[charge.call].end
        )
        if not inside:
            raise Broken(f"{where}: charge '{charge.reason}' [{charge.start}, {charge.end}) leaves its call's tokens")


def _check_places(trajectory: Trajectory, turns: list[_Turn], renderer: Renderer, where: str) -> None:
    """Compare calls, names, arguments and charges with the tokens whose bytes spell those very characters."""
    calls, charges = iter(trajectory.calls), iter(trajectory.charges)
    starts = [span.start for span in trajectory.decisions]
    for turn, start in zip([turn for turn in turns if turn.ids.size], starts, strict=True):
        if turn.report is None:
            continue
        places = _Places(renderer, turn, start, where)
        for result in turn.report.results:
            parsed, call = turn.report.parsed.calls[result.index], next(calls)
            places.expect((parsed.start, parsed.end), (call.start, call.end), f"call {call.name}")
            if parsed.name_range is not None and call.name_range is not None:
                places.expect(parsed.name_range, call.name_range, f"the name of call {call.name}")
            for path, chars in parsed.argument_ranges.items():
                places.expect(chars, call.argument_ranges[path], f"argument {path} of call {call.name}")
            for told in result.charges:
                charge = next(charges)
                places.expect((told.start, told.end), (charge.start, charge.end), f"charge '{told.reason}'")


class _Places:
    """Where the characters of a turn's message stand among its tokens, counted in bytes."""

    def __init__(self, renderer: Renderer, turn: _Turn, start: int, where: str) -> None:
        pieces = renderer.token_bytes(turn.ids.tolist())
        spelled = b"".join(pieces[:-1] if turn.ids[-1] in renderer.stop_ids else pieces)
        self._text, self._start, self._where = turn.message, start, where
        if spelled.decode("utf-8", "replace").strip() != turn.message.strip():
            raise Broken(f"{where}: the ids of {turn.message[:60]!r} spell {spelled[:60]!r}")
        shift = spelled.index(turn.message.strip().encode())
        shift -= turn.message.encode().index(turn.message.strip().encode())
        self._ends = np.cumsum([len(piece) for piece in pieces]) - shift

    def expect(self, chars: tuple[int, int], found: tuple[int, int], what: str) -> None:
        """Raise `Broken` unless `found` are the tokens that own any byte of `chars`."""
        first, last = (len(self._text[:at].encode()) for at in chars)
        tokens = int(np.searchsorted(self._ends, first, "right")), int(np.searchsorted(self._ends, last, "left")) + 1
        expected = (self._start + tokens[0], self._start + tokens[1])
        if expected != tuple(found):
            raise Broken(f"{self._where}: {what} lies on tokens {list(found)}, its characters on {list(expected)}")
