"""One update of the weights from priced trajectories: batches, loss, gradient, step."""

import copy
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from accredit.agents.models import has_adapter
from accredit.credit import AccreditError, Trajectory

from .batch import Batch, Row, collate, rows_of, weigh
from .config import LossConfig, OptimizerConfig
from .distributed import ALONE, Processes
from .distributed_rows import deal, weightless
from .importance import gap_metrics, importance_of
from .logprobs import score
from .loss import kl_penalty, policy_loss
from .signals import TokenSignals
from .vocabulary import Scores

__all__ = ["UpdateError", "Updater"]

_LARGEST = {"widest"}
"""What is gathered as a maximum and not as a sum."""


class UpdateError(AccreditError, FloatingPointError):
    """The weights cannot be updated: the gradient is not finite."""


class Updater:
    """Spends advantages on the weights of one model.

    With several `processes` all make the same update of a `ShardedModel` from the same trajectories; each computes its
    part of the micro-batches, and `reference` is sharded too. Alone, the reference is a copy of the model, or the model
    itself with its adapter switched off.
    """

    def __init__(
        self,
        model: Any,
        optimizer: torch.optim.Optimizer,
        loss: LossConfig,
        config: OptimizerConfig,
        processes: Processes = ALONE,
        reference: Any = None,
    ) -> None:
        self._model, self._optimizer, self._loss, self._config = model, optimizer, loss, config
        self._processes = processes
        self._score = _call if processes.sharded else score
        self._reference = _reference_of(model, reference) if loss.kl > 0 else None
        self._weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        self._device = next(model.parameters()).device

    def _as_reference(self) -> AbstractContextManager[None]:
        """Let the reference be what it is while it scores."""
        if self._reference is not self._model:
            return nullcontext()
        from accredit.agents.lora import switched_off

        return switched_off(self._model)

    def update(
        self,
        trajectories: Sequence[Trajectory],
        advantages: Sequence[NDArray[np.float64]],
        lr: float,
        seed: int,
        apart: bool = False,
        signals: TokenSignals | None = None,
    ) -> dict[str, float]:
        """Make the epochs and minibatches of one step; return its metrics.

        `apart` says that what sampled the trajectories is not the model as it is now: older weights, or an engine with
        a gap. With `loss.importance` they are then weighted for it, at the price of a forward pass. `signals` of these
        trajectories are noted by that pass and by the first optimizer step's, before it moves a weight.
        """
        started = time.monotonic()
        rows = rows_of(trajectories, advantages)
        weights: dict[str, float] = {}
        if apart and self._loss.importance != "none":
            rows, weights = self._weighted(rows, signals)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        owners = np.array(sorted({row.owner for row in rows}), dtype=np.int64)
        shuffle = np.random.default_rng(seed)
        sums: dict[str, float] = {}
        steps = 0
        norms: list[float] = []
        for _ in range(self._config.epochs):
            for part in np.array_split(shuffle.permutation(owners), self._config.minibatches):
                chosen = set(part.tolist())
                weighed = weigh(
                    [row for row in rows if row.owner in chosen],
                    self._loss.aggregation,
                    self._loss.constant_tokens,
                    keep_silent=self._loss.kl > 0 or self._loss.entropy > 0,
                )
                if not weighed:
                    continue
                norms.append(self._step(weighed, sums, first=steps == 0, signals=signals))
                steps += 1
        sums = _added(self._processes.gather(sums))
        if signals is not None:
            signals.gather(self._processes)
        tokens = max(1.0, sums.get("tokens", 0.0))
        fresh = max(1.0, sums.get("fresh_tokens", 0.0))
        return {
            "optimizer/steps": float(steps),
            "optimizer/lr": lr,
            "optimizer/grad_norm": float(np.mean(norms)) if norms else float("nan"),
            "loss/policy": sums.get("policy", 0.0) / max(1, steps),
            "loss/kl": sums.get("kl", 0.0) / max(1, steps),
            "policy/clip_share": sums.get("clipped", 0.0) / tokens,
            "policy/sampler_gap_nats": sums.get("gap", 0.0) / fresh,
            "policy/sampler_gap_max_nats": sums.get("widest", 0.0),
            "policy/sampler_kl_nats": sums.get("sampler_kl", 0.0) / fresh,
            "time/train_s": time.monotonic() - started,
            "policy/full_entropy_nats": sums.get("entropy", 0.0) / fresh,
            "train/forward_tokens": sums.get("forward", 0.0),
            "train/row_tokens": sums.get("rows", 0.0),
            **_drift(sums),
            **weights,
        }

    def _weighted(self, rows: Sequence[Row], signals: TokenSignals | None = None) -> tuple[list[Row], dict[str, float]]:
        """Return the rows with the proximal policy's log-probabilities and importance weights, and metrics of both.

        Rows of trajectories without a signal stay as they are: their policy term has no weight.
        """
        loud = {row.owner for row in rows if bool(np.any(row.advantages_N != 0))}
        chosen = [row for row in rows if row.owner in loud]
        if not chosen:
            return list(rows), {}
        proximal, sampled = self._score_all(chosen, signals), [row.logprobs_N for row in chosen]
        owners = [row.owner for row in chosen]
        if signals is not None:
            signals.gather(self._processes)
        found = importance_of(proximal, sampled, owners, self._loss.importance, self._loss.importance_cap)
        weighted = [
            replace(row, logprobs_N=logprobs_N, importance_N=weight_N)
            for row, logprobs_N, weight_N in zip(chosen, proximal, found.weights, strict=True)
        ]
        silent = [row for row in rows if row.owner not in loud]
        gap = gap_metrics(np.concatenate(proximal), np.concatenate(sampled))
        return [*weighted, *silent], {**gap, **found.metrics}

    @torch.no_grad()
    def _score_all(self, rows: Sequence[Row], signals: TokenSignals | None) -> list[NDArray[np.float32]]:
        """Return the model's log-probabilities of the decision tokens, float32 [N] a row, on every process."""
        self._model.eval()
        company, number = self._processes, {id(row): index for index, row in enumerate(rows)}
        own: dict[int, NDArray[np.float32]] = {}
        for part in deal(rows, self._config.micro_tokens, company.rank, company.world):
            scores = self._score(self._model, collate(part or weightless(rows), self._device))
            if part and signals is not None:
                signals.note(part, scores)
            ends = np.cumsum([len(row.targets_N) for row in part or ()])
            for row, scores_N in zip(part or (), np.split(scores.logprobs_N.float().cpu().numpy(), ends), strict=False):
                own[number[id(row)]] = scores_N
        found = {index: scores_N for share in company.gather(own) for index, scores_N in share.items()}
        return [found[index] for index in range(len(rows))]

    def _step(self, weighed: Sequence[Row], sums: dict[str, float], first: bool, signals: TokenSignals | None) -> float:
        self._model.train()
        self._optimizer.zero_grad(set_to_none=True)
        world = self._processes.world
        for rows in deal(weighed, self._config.micro_tokens, self._processes.rank, world):
            batch = collate(rows or weightless(weighed), self._device)
            logprobs_N, entropy_N = self._score(self._model, batch)
            loss_N, clipped_N = policy_loss(
                logprobs_N,
                batch.logprobs_N,
                batch.advantages_N,
                self._loss.kind,
                self._loss.clip_low,
                self._loss.clip_high,
            )
            policy = (loss_N * batch.weight_N).sum()
            total = policy
            if self._loss.entropy > 0:
                total = total - self._loss.entropy * (entropy_N * batch.kl_weight_N).sum()
            if self._reference is not None:
                with torch.no_grad(), self._as_reference():
                    reference_N = self._score(self._reference, batch).logprobs_N
                kl = (kl_penalty(logprobs_N, reference_N, self._loss.kl_estimator) * batch.kl_weight_N).sum()
                total = total + self._loss.kl * kl
                if rows:
                    _add(sums, kl=kl.detach())
                    drift_N, paid_N = logprobs_N.detach() - reference_N, batch.advantages_N > 0
                    _add(sums, drift_paid=drift_N[paid_N].sum(), paid=paid_N.sum())
                    _add(sums, drift_rest=drift_N[~paid_N].sum(), rest=(~paid_N).sum())
            (total * world).backward()  # shards get the mean of the processes' gradients, and weights ask for the sum
            if not rows:
                continue
            gap_N = logprobs_N.detach() - batch.logprobs_N
            _add(sums, policy=policy.detach(), tokens=len(gap_N), clipped=clipped_N.sum())
            _add(sums, forward=len(batch.token_ids_T), rows=sum(len(row.token_ids_T) for row in rows))
            if first and signals is not None:
                signals.note(rows, Scores(logprobs_N, entropy_N))
            if first:
                _add(sums, gap=gap_N.abs().sum(), entropy=entropy_N.detach().sum(), fresh_tokens=len(gap_N))
                _add(sums, widest=gap_N.abs().max(), sampler_kl=(gap_N.exp() - 1 - gap_N).sum())
        norm = torch.nn.utils.clip_grad_norm_(self._weights, self._config.grad_clip)
        if self._processes.sharded:
            norm = norm.full_tensor()  # pyright: ignore[reportCallIssue]  # a DTensor
        if not bool(torch.isfinite(norm)):
            raise UpdateError(f"the gradient norm is {norm.item()}: nothing was stepped. Lower optimizer.lr")
        self._optimizer.step()
        return float(norm)


def _reference_of(model: Any, reference: Any) -> Any:
    """Return a model that gives the log-probabilities that `model` had at first."""
    if reference is None and has_adapter(model):
        return model
    return (copy.deepcopy(model) if reference is None else reference).eval().requires_grad_(False)


def _call(model: Any, batch: Batch) -> Scores:
    """Score a batch with a sharded model, whose weights come together only where it is called itself."""
    return model(batch)


def _added(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: max(part.get(name, 0.0) for part in parts)
        if name in _LARGEST
        else sum(part.get(name, 0.0) for part in parts)
        for name in names
    }


def _drift(sums: dict[str, float]) -> dict[str, float]:
    """Return the mean log pi - log pi_ref of rewarded tokens and of the others, where there is a reference."""
    if not (sums.get("paid") and sums.get("rest")):
        return {}
    return {
        "health/kl_paid_nats": sums["drift_paid"] / sums["paid"],
        "health/kl_rest_nats": sums["drift_rest"] / sums["rest"],
    }


def _add(sums: dict[str, float], **values: Any) -> None:
    for name, value in values.items():
        before = sums.get(name, 0.0)
        sums[name] = max(before, float(value)) if name in _LARGEST else before + float(value)
