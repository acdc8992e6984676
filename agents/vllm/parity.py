"""The guard: what the engine says of the tokens it sampled, against the trainer's model.

Off-policy corrections assume that log-probabilities are the policy's. Stale weights, a prefix cache that outlived an
update, or settings of the sampler break that without a sound, so it is measured after every update.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from accredit.agents.policy import EngineError

from .replica import Sampled

__all__ = ["TOLERANCES", "Gap", "ParityError", "check", "model_logprobs", "widest"]

TOLERANCES = {"float32": 1e-3, "bfloat16": 1.0}
"""Largest gap in nats by precision. In float32 other kernels cost 2e-5; bfloat16 parts by 0.06 on average, and by far
more on single tokens, so that only gross faults show in it."""


class ParityError(EngineError):
    """The engine's log-probabilities are not those of the trainer's model."""


class Gap(NamedTuple):
    """The widest gap, in nats, among `tokens` compared; `engine` and `model` say what each gave the token."""

    nats: float
    tokens: int
    engine: float
    model: float


@torch.no_grad()
def model_logprobs(model: Any, context: NDArray[np.int32], sampled: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return the model's log-probabilities of `sampled` (int32 [N]) after `context` (int32 [T]), float32 [N]."""
    device = next(model.parameters()).device
    ids_T = torch.as_tensor(np.concatenate([context, sampled]), dtype=torch.long, device=device)
    training = model.training
    model.eval()
    logits_NV = model(ids_T[None], logits_to_keep=len(sampled) + 1).logits[0, :-1].float()
    model.train(training)
    chosen_N = ids_T[len(context) :]
    return logits_NV.log_softmax(-1).gather(1, chosen_N[:, None])[:, 0].cpu().numpy()


def widest(model: Any, contexts: Sequence[NDArray[np.int32]], sampled: Sequence[Sampled]) -> Gap:
    """Return the widest gap over all sampled tokens; a gap that is not a number is the widest of all."""
    found = Gap(0.0, sum(len(each.ids) for each in sampled), 0.0, 0.0)
    for context, each in zip(contexts, sampled, strict=True):
        expected = model_logprobs(model, context, each.ids)
        for engine, ours in zip(each.logprobs.tolist(), expected.tolist(), strict=True):
            if not abs(engine - ours) <= found.nats:
                found = found._replace(nats=abs(engine - ours), engine=engine, model=ours)
    return found


def check(gap: Gap, tolerance: float, name: str, version: int) -> None:
    """Raise `ParityError` if the gap exceeds the tolerance or is not a number."""
    if gap.nats <= tolerance:
        return
    raise ParityError(
        f"log-probabilities of {name} part from the trainer's model at policy version {version}: largest gap "
        f"{gap.nats:.3g} nats over {gap.tokens} tokens (engine {gap.engine:.4f}, model {gap.model:.4f}), tolerance "
        f"{tolerance:g}. Weights of an earlier version, a tied output head that was not updated, or sampler settings "
        "are the usual reasons: nothing was trained on them. Start servers from what accredit.agents.vllm.weights."
        "export writes, without settings of their own; if precision alone explains the gap, raise "
        "rollout.vllm.tolerance"
    )
