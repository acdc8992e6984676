"""Checks at the level of tokens: what `RecordCredit` writes under unlike tokenizers."""

from collections.abc import Mapping

import numpy as np

from accredit.credit import SpanKind, Trajectory

from .recorder import Decision, RecordCredit
from .rendering import Renderer
from .subject import Broken, Subject, play

__all__ = ["built_in_renderers", "masks_hold"]


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
                trajectory, sampled = _record(subject, renderer, script, seed, options, where)
                _check(trajectory, sampled, where)
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
) -> tuple[Trajectory, list[np.ndarray]]:
    from accredit.credit import StopReason

    env = RecordCredit(subject.make(), renderer)
    context, _ = env.reset(seed=seed, options=dict(options))
    sampled: list[np.ndarray] = []
    for message in script:
        ids = np.asarray(renderer.encode(message), dtype=np.int32)
        logprobs = -np.linspace(0.1, 1.0, ids.size, dtype=np.float32)
        sampled.append(ids)
        before = env.context
        if not np.array_equal(before, context):
            raise Broken(f"{where}: the policy's context is not what it was given")
        added, _, terminated, truncated, info = env.step(Decision(ids, logprobs))
        if terminated or truncated:
            break
        context = added if "segment" in info else np.concatenate([before, ids, added])
    trajectory = env.trajectory or env.finish(StopReason.CANCELLED)
    return trajectory, sampled


def _check(trajectory: Trajectory, sampled: list[np.ndarray], where: str) -> None:
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
