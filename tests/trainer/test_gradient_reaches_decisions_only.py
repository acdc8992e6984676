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
    """Return |d loss / d logits| summed over the vocabulary, [R, T]: what each next token is trained by."""
    kept = []

    def keep(_module, _args, output):
        output.last_hidden_state.retain_grad()
        kept.append(output.last_hidden_state)

    hook = model.base_model.register_forward_hook(keep)
    batch = collate(rows)
    loss_N, _ = policy_loss(score(model, batch), batch.logprobs_N, batch.advantages_N)
    (loss_N * batch.weight_N).sum().backward()
    hook.remove()
    return kept[0].grad.abs().sum(-1)


@pytest.mark.parametrize("name", sorted(CREDIT_FUNCTIONS))
def test_no_gradient_reaches_a_token_whose_credit_mask_is_0(model, sampled_trajectories, name):
    rng = np.random.default_rng(0)
    scored = [_with_outcome(t, float(rng.random()), index // 2) for index, t in enumerate(sampled_trajectories)]
    groups = [Group(tuple(scored[at : at + 4])) for at in (0, 4)]
    credits = [credit for group in groups for credit in _price(name, group)]
    advantages = [credit.advantage.total for credit in credits]
    rows = weigh(rows_of(scored, advantages), "token_mean")
    assert len(rows) == 8
    gradient_RT = logits_gradient(model, rows)
    for row, gradient_T in zip(rows, gradient_RT, strict=True):
        trajectory, advantage_T = scored[row.owner], advantages[row.owner]
        length = len(row.token_ids_T)
        masked_T = ~trajectory.credit_mask[1:length]
        assert masked_T.sum() > 100
        assert gradient_T[: length - 1][torch.from_numpy(masked_T)].max() == 0
        assert (gradient_T[length - 1 :] == 0).all()
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
