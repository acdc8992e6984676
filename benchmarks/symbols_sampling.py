"""Episodes of Symbols side by side: a small transformer that decides, and the compact loop that samples from it.

All episodes have one shape: a first token that says nothing, then K times a symbol, F free filler tokens, a choice and
a coin. So they are sampled as one batch without an environment; tasks, coins and noise come from outside.

Dimensions: B episodes, T tokens, K turns, N tokens of a decision or new tokens, V vocabulary, W width.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from accredit.envs.catalogue.symbols import SYMBOLS

__all__ = ["CHOICE", "COIN", "SYMBOL", "Lived", "Setting", "Transformer", "offered", "sample"]

BOS, COIN, SYMBOL, CHOICE, FILLER, VOCABULARY = 0, 1, 3, 3 + len(SYMBOLS), 3 + 2 * len(SYMBOLS), 7 + 2 * len(SYMBOLS)


class Setting(NamedTuple):
    """What is the same for every run: the process, the step and the policy. `turns` is K, `filler` is F."""

    turns: int = 6
    filler: int = 2
    groups: int = 16
    group_size: int = 8
    steps: int = 150
    lr: float = 1e-3
    width: int = 64
    layers: int = 2
    heldout: int = 256

    @property
    def length(self) -> int:
        """The number of tokens T of an episode."""
        return 1 + self.turns * (self.filler + 3)


class Transformer(nn.Module):
    """A causal transformer; keys and values of what it has read stay in `kept`."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        width = setting.width
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(setting.length, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * setting.layers + 1))
        self.attend = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(setting.layers))
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(setting.layers))
        self.think = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(setting.layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids_BN: Tensor, kept: list[Tensor] | None = None) -> Tensor:
        """Return logits [B, N, V] after each of N new tokens; `kept` [B, T, 3W] a layer is read and extended."""
        before = 0 if not kept else kept[0].shape[1]
        count, total = ids_BN.shape[1], before + ids_BN.shape[1]
        mask_NT = torch.arange(total) <= before + torch.arange(count)[:, None]
        x = self.tokens(ids_BN) + self.places(torch.arange(before, total))
        for layer, (attend, mix, think) in enumerate(zip(self.attend, self.mix, self.think, strict=True)):
            qkv = attend(self.norms[2 * layer](x))
            if kept is not None:
                qkv = torch.cat([kept[layer], qkv], 1) if before else qkv
                kept[layer : layer + 1] = [qkv]
            q, k, v = qkv.view(len(x), total, 3, 4, -1).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(q[:, :, before:], k, v, attn_mask=mask_NT)
            x = x + mix(seen.transpose(1, 2).reshape(x.shape))
            x = x + think(self.norms[2 * layer + 1](x))
        return self.head(self.norms[-1](x))


class Lived(NamedTuple):
    """Episodes side by side: ids [B, L], log-probabilities [B, K, F+1] of what was decided, right choices [B]."""

    ids: Tensor
    logprobs: Tensor
    right: Tensor


def offered(logits_BV: Tensor, place: int, setting: Setting) -> Tensor:
    """Return log-probabilities [B, V] of what may stand at a place of a decision: filler, at last a choice."""
    first, last = (FILLER, VOCABULARY) if place < setting.filler else (CHOICE, FILLER)
    shut = torch.ones(VOCABULARY, dtype=torch.bool)
    shut[first:last] = False
    return logits_BV.masked_fill(shut, -torch.inf).log_softmax(-1)


@torch.inference_mode()
def sample(
    model: Transformer, rows: list[str], coins_BK: Tensor, noise_BKN: Tensor, setting: Setting,
    base: Lived | None = None, forks_B: Tensor | None = None,
) -> Lived:  # fmt: skip
    """Live one episode a row. With `base`, what it decided before the turns `forks_B` is repeated."""
    symbols_BK = SYMBOL + torch.tensor([[SYMBOLS.index(symbol) for symbol in row] for row in rows])
    ids = [torch.full((len(rows), 1), BOS)]
    fresh, kept, logprobs, right = ids[0], [], [], torch.zeros(len(rows), dtype=torch.long)
    at = 1
    for turn in range(setting.turns):
        fresh = torch.cat([fresh, symbols_BK[:, turn : turn + 1]], 1)
        ids.append(fresh[:, -1:])
        at += 1
        for place in range(setting.filler + 1):
            logprobs_BV = offered(model(fresh, kept)[:, -1], place, setting)
            cumulative_BV = logprobs_BV.double().exp().cumsum(-1)
            target_B1 = noise_BKN[:, turn, place, None] * cumulative_BV[:, -1:]
            chosen_B = torch.searchsorted(cumulative_BV, target_B1, right=True)[:, 0].clamp(max=VOCABULARY - 1)
            if base is not None and forks_B is not None:
                chosen_B = torch.where(turn < forks_B, base.ids[:, at], chosen_B)
            logprobs.append(logprobs_BV.gather(1, chosen_B[:, None]))
            fresh = chosen_B[:, None]
            ids.append(fresh)
            at += 1
        right += ids[-1][:, 0] - CHOICE == symbols_BK[:, turn] - SYMBOL
        ids.append(COIN + coins_BK[:, turn : turn + 1])
        fresh = torch.cat([fresh, ids[-1]], 1)
        at += 1
    return Lived(torch.cat(ids, 1), torch.cat(logprobs, 1).view(len(rows), setting.turns, -1), right)
