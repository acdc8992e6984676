"""The embedded engine: any `transformers` causal language model, on CPU, MPS or GPU.

Keys and values are kept per episode, so that each turn prefills only what is new; a prompt shared by a group is
prefilled once. Log-probabilities come from the sampling pass and are the policy's own at temperature 1, whatever the
sampling temperature. Top-p, top-k and penalties are not offered: what they sample from is another policy.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .grouped_attention import attend_in_groups
from .kvcache import BatchCache, causal_mask
from .policy import Decision, Request, sampling_noise

__all__ = ["TransformersPolicy"]

_PREFILL_TOKENS = 16_384


class _Memory:
    """What is kept of one episode between turns: its ids and their keys and values."""

    __slots__ = ("ids", "rows")

    def __init__(self, ids: NDArray[np.int32], rows: Tensor) -> None:
        self.ids, self.rows = ids, rows


class TransformersPolicy:
    """Samples from `model`, which the trainer may update in place; call `updated` after each change of the weights."""

    lockstep = True

    def __init__(self, model: Any, version: int = 0) -> None:
        attend_in_groups(model)
        self.model = model
        self._version = version
        self._memories: dict[str, _Memory] = {}
        self._layers = int(model.config.num_hidden_layers)

    @property
    def version(self) -> int:
        """The version of the weights."""
        return self._version

    def updated(self, version: int) -> dict[str, float]:
        """Note new weights: every kept key and value is stale and is dropped. There is nothing to measure."""
        self._version = version
        self._memories.clear()
        return {}

    def close(self) -> None:
        """Drop every kept key and value; the model is the caller's."""
        self._memories.clear()

    def forget(self, episode_id: str) -> None:
        """Drop the keys and values of an episode that has ended."""
        self._memories.pop(episode_id, None)

    async def sample(self, requests: Sequence[Request]) -> list[Decision]:
        """Sample one decision a request, as one batch, off the event loop."""
        return await asyncio.to_thread(self._sample, list(requests))

    @torch.inference_mode()
    def _sample(self, requests: list[Request]) -> list[Decision]:
        self.model.eval()
        lengths = np.array([len(request.token_ids) for request in requests])
        limits = np.array([request.limit for request in requests])
        if limits.min() < 1:
            raise ValueError(f"a request needs room for at least one token, found a limit of {limits.min()}")
        noise_BN = np.stack([sampling_noise(r.seed, r.turn, int(limits.max())) for r in requests])
        stored, logits_RV = self._prefill(requests)
        cache = BatchCache.of(stored, self._layers, int((lengths + limits).max()))
        del stored
        ids: list[list[int]] = [[] for _ in requests]
        logprobs: list[list[float]] = [[] for _ in requests]
        rows = list(
            range(len(requests))
        )  # the request of each row of the cache; a finished row idles until it is dropped
        done = [False] * len(requests)
        for step in range(int(limits.max())):
            chosen_R, logprobs_R = _choose(logits_RV, noise_BN[rows, step], [requests[i].temperature for i in rows])
            for row, i in enumerate(rows):
                if not done[i]:
                    ids[i].append(int(chosen_R[row]))
                    logprobs[i].append(float(logprobs_R[row]))
                    done[i] = ids[i][-1] in requests[i].stop_ids or len(ids[i]) == limits[i]
            going = [row for row, i in enumerate(rows) if not done[i]]
            if len(going) <= len(rows) // 2:
                for row, i in enumerate(rows):
                    if done[i]:
                        self._remember(requests[i], ids[i], cache, row)
                if not going:
                    break
                cache.keep(torch.tensor(going, device=self._device))
                rows = [rows[row] for row in going]
            newest_R = np.array([ids[i][-1] for i in rows])
            at_R = np.array([lengths[i] + len(ids[i]) - 1 for i in rows])
            logits_RV = self._forward(cache, newest_R[:, None], at_R[:, None], np.ones_like(at_R))
        for row, i in enumerate(rows):
            self._remember(requests[i], ids[i], cache, row)
        return [
            Decision(np.array(i, dtype=np.int32), np.array(p, dtype=np.float32), self._version)
            for i, p in zip(ids, logprobs, strict=True)
        ]

    def _prefill(self, requests: list[Request]) -> tuple[list[Tensor], Tensor]:
        """Run every request's new tokens; return stored rows [L, 2, H, T, D] and the next token's logits [B, V]."""
        jobs: dict[bytes, tuple[NDArray[np.int32], Tensor | None]] = {}
        keys: list[bytes] = []
        for request in requests:
            memory = self._memories.get(request.episode_id)
            known = len(memory.ids) if memory else 0
            if memory and (
                known >= len(request.token_ids) or not np.array_equal(memory.ids, request.token_ids[:known])
            ):
                memory, known = None, 0
            key = request.token_ids.tobytes() if memory is None else request.episode_id.encode()
            keys.append(key)
            jobs[key] = (request.token_ids, memory.rows if memory else None)
        done: dict[bytes, tuple[Tensor, Tensor]] = {}
        waiting = sorted(jobs.items(), key=lambda job: len(job[1][0]) - _known(job[1][1]))
        while waiting:
            longest = len(waiting[-1][1][0]) - _known(waiting[-1][1][1])
            batch = waiting[-max(1, _PREFILL_TOKENS // longest) :]
            del waiting[-len(batch) :]
            ids = [job[0] for _, job in batch]
            known = np.array([_known(job[1]) for _, job in batch])
            new = np.array([len(i) for i in ids]) - known
            cache = BatchCache.of([job[1] for _, job in batch], self._layers, int((known + longest).max()))
            tokens_BN = np.zeros((len(batch), longest), dtype=np.int64)
            for row, i in enumerate(ids):
                tokens_BN[row, : new[row]] = i[known[row] :]
            logits_BV = self._forward(cache, tokens_BN, known[:, None] + np.arange(longest), new)
            for row, (key, _) in enumerate(batch):
                done[key] = cache.row(row, len(ids[row])), logits_BV[row]
        return [done[key][0] for key in keys], torch.stack([done[key][1] for key in keys])

    def _forward(
        self,
        cache: BatchCache,
        tokens_BN: NDArray[np.int64],
        positions_BN: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> Tensor:
        """Run new tokens; return the logits [B, V] after the last of each row's `counts` tokens."""
        positions = torch.as_tensor(positions_BN, device=self._device)
        extent = int(positions_BN.max()) + 1
        cache.place(positions, extent)
        hidden_BND = self.model.base_model(
            input_ids=torch.as_tensor(tokens_BN, device=self._device),
            attention_mask=causal_mask(positions, extent),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        last = torch.as_tensor(counts - 1, device=self._device)
        hidden_BD = hidden_BND[torch.arange(len(counts), device=self._device), last]
        return self.model.get_output_embeddings()(hidden_BD).float()

    def _remember(self, request: Request, sampled: list[int], cache: BatchCache, row: int) -> None:
        held = len(request.token_ids) + len(sampled) - 1
        ids = np.concatenate([request.token_ids, np.array(sampled[:-1], dtype=np.int32)])
        self._memories[request.episode_id] = _Memory(ids, cache.row(row, held))

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def _known(rows: Tensor | None) -> int:
    return 0 if rows is None else rows.shape[3]


def _choose(
    logits_BV: Tensor, noise_B: NDArray[np.float64], temperatures: Sequence[float]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Invert the cumulative distribution at each row's noise; temperature 0 takes the likeliest token."""
    logprobs_BV = logits_BV.log_softmax(-1)
    heat_B1 = torch.tensor(temperatures, dtype=torch.float64, device=logits_BV.device)[:, None]
    cumulative_BV = (logits_BV.double() / heat_B1.clamp(min=1e-6)).softmax(-1).cumsum(-1)
    target_B1 = torch.as_tensor(noise_B, device=logits_BV.device)[:, None] * cumulative_BV[:, -1:]
    drawn_B = torch.searchsorted(cumulative_BV, target_B1, right=True)[:, 0].clamp(max=logits_BV.shape[-1] - 1)
    chosen_B = torch.where(heat_B1[:, 0] == 0, logits_BV.argmax(-1), drawn_B)
    return chosen_B.cpu().numpy(), logprobs_BV.gather(1, chosen_B[:, None])[:, 0].cpu().numpy()
