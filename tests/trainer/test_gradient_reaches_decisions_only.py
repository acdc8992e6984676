"""By autograd on a real model, not by reading the mask."""

import dataclasses

import numpy as np
import pytest
import torch

from accredit.credit import Group
from accredit.credit.functions import CREDIT_FUNCTIONS, StepScores, credit_function, state_values
from accredit.trainer.batch import collate, rows_of, weigh
from accredit.trainer.logprobs import score
from accredit.trainer.loss import policy_loss


def logits_gradient(model, rows):
    """Return |d loss / d hidden| of every row's tokens, and of all packed ones: what each next token is trained by."""
    kept = []

    def keep(_module, _args, output):
        output.last_hidden_state.retain_grad()
        kept.append(output.last_hidden_state)

    hook = model.base_model.register_forward_hook(keep)
    batch = collate(rows)
    loss_N, _ = policy_loss(score(model, batch).logprobs_N, batch.logprobs_N, batch.advantages_N)
    (loss_N * batch.weight_N).sum().backward()
    hook.remove()
    gradient_T = kept[0].grad[0].abs().sum(-1)
    return [gradient_T[torch.from_numpy(path)] for path in batch.paths], batch


@pytest.mark.parametrize("name", sorted(CREDIT_FUNCTIONS))
def test_no_gradient_reaches_a_token_whose_credit_mask_is_0(model, sampled_trajectories, name):
    rng = np.random.default_rng(0)
    scored = [_with_outcome(t, float(rng.random()), index // 2) for index, t in enumerate(sampled_trajectories)]
    groups = [Group(tuple(scored[at : at + 4])) for at in (0, 4)]
    credits = [credit for group in groups for credit in _price(name, group)]
    advantages = [credit.advantage.total for credit in credits]
    rows = weigh(rows_of(scored, advantages), "token_mean")
    assert len(rows) == 8
    gradients, batch = logits_gradient(model, rows)
    trained = {at for row, path in zip(rows, batch.paths, strict=True) for at in path[row.targets_N - 1].tolist()}
    for row, path, gradient_T in zip(rows, batch.paths, gradients, strict=True):
        trajectory, advantage_T = scored[row.owner], advantages[row.owner]
        length = len(row.token_ids_T)
        masked_T = ~trajectory.credit_mask[1:length]
        untrained_T = masked_T & ~np.isin(path[:-1], list(trained))  # another row may decide after a shared token
        assert untrained_T.sum() > 100
        assert untrained_T.sum() >= masked_T.sum() - 1
        assert gradient_T[: length - 1][torch.from_numpy(untrained_T)].max() == 0
        assert gradient_T[length - 1] == 0 or path[-1] in trained
        trained_T = advantage_T[1:length] != 0
        assert trained_T.any()
        assert (gradient_T[: length - 1][torch.from_numpy(trained_T)] > 0).all()


def _with_outcome(trajectory, outcome, pair):
    return dataclasses.replace(trajectory, outcome=outcome, seeds={"pair": pair, "fork_turn": 0})


def _price(name, group):
    needed = {"exact": {"values": state_values(group)}, "prm_broadcast": {"scores": _scored_by_reward}}
    return credit_function(name, **needed.get(name, {}))(group)


def _scored_by_reward(trajectory):
    return StepScores(np.where(trajectory.credit_mask, 0, -1), np.array([trajectory.reward]))
