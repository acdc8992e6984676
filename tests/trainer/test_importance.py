"""Importance weights: what they are computed from, that they make stale data unbiased, and what the cap costs."""

import copy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from accredit.trainer.batch import collate, rows_of
from accredit.trainer.config import LossConfig, OptimizerConfig
from accredit.trainer.importance import ImportanceError, gap_metrics, importance_of
from accredit.trainer.logprobs import score
from accredit.trainer.loss import policy_loss
from accredit.trainer.update import Updater

ACTIONS, STATES = 3, 2
REWARD = torch.tensor(np.random.default_rng(5).normal(size=(ACTIONS, STATES, ACTIONS)))
LUCK = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], dtype=torch.float64)
"""Reward [first action, state, second action]; chance [first action, state] of the environment's move between."""


def logits(seed):
    """A softmax policy of two turns: logits [1 + STATES, ACTIONS], the first turn's and those of each state."""
    return torch.tensor(np.random.default_rng(seed).normal(size=(1 + STATES, ACTIONS)), requires_grad=True)


def exact_gradient(theta):
    """The gradient of the expected reward, by enumeration."""
    pi = theta.softmax(-1)
    expected = torch.einsum("a,as,sb,asb->", pi[0], LUCK, pi[1:], REWARD)
    return torch.autograd.grad(expected, theta)[0]


def stale_gradient(theta, mu, level, cap=np.inf, kind="clipped"):
    """The expectation, over all episodes that `mu` lives, of the gradient of the weighted loss at `theta`."""
    now, then = theta.log_softmax(-1), mu.log_softmax(-1).detach()
    total = torch.zeros((), dtype=torch.float64)
    for a, s, b in product(range(ACTIONS), range(STATES), range(ACTIONS)):
        logprobs = torch.stack([now[0, a], now[1 + s, b]])
        sampled = torch.stack([then[0, a], then[1 + s, b]])
        if level == "none":
            weights, against = torch.ones(2), sampled
        else:
            (found,) = importance_of([logprobs.detach().numpy()], [sampled.numpy()], [0], level, cap).weights
            weights, against = torch.from_numpy(found), logprobs.detach()
        loss, _ = policy_loss(logprobs, against, REWARD[a, s, b].expand(2), kind)
        total = total + sampled.sum().exp() * LUCK[a, s] * (weights * loss).sum()
    return -torch.autograd.grad(total, theta)[0]


def test_sequence_weights_make_the_gradient_of_stale_episodes_the_policy_gradient():
    theta, mu = logits(0), logits(1)
    exact = exact_gradient(theta)
    errors = {
        cap: float((stale_gradient(theta, mu, "sequence", cap) - exact).norm()) for cap in (1.0, 2.0, 4.0, 16.0, np.inf)
    }
    assert errors[np.inf] < 1e-6 * float(exact.norm())  # weights are float32
    assert errors[1.0] > errors[2.0] > errors[4.0] > errors[16.0] >= errors[np.inf]
    assert errors[1.0] > 0.1 * float(exact.norm())


def test_token_weights_are_exact_in_the_last_decision_and_biased_before_it():
    theta, mu = logits(0), logits(1)
    mu_once = torch.cat([theta[:1].detach(), mu[1:].detach()])  # only the second turn is stale
    exact = exact_gradient(theta)
    once = stale_gradient(theta, mu_once, "token")
    torch.testing.assert_close(once[1:], exact[1:], rtol=1e-6, atol=1e-7)
    assert (once[0] - exact[0]).norm() > 0.01 * exact[0].norm()
    plain = stale_gradient(theta, mu, "none", kind="unclipped")
    # without a proximal policy the unclipped ratio is the token's weight itself
    torch.testing.assert_close(stale_gradient(theta, mu, "token"), plain, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_on_policy_the_weighted_gradient_is_the_plain_one(level):
    theta = logits(0)
    torch.testing.assert_close(stale_gradient(theta, theta, level, 1.0), exact_gradient(theta))


def test_weights_are_products_over_an_episode_and_never_exceed_the_cap():
    p = [np.log([0.5, 0.2]), np.log([0.9]), np.log([0.3])]
    q = [np.log([0.25, 0.4]), np.log([0.3]), np.log([0.4])]
    token = importance_of(p, q, [0, 0, 1], "token", 2.5)
    assert [w.tolist() for w in token.weights] == [
        pytest.approx([2.0, 0.5]),
        pytest.approx([2.5]),
        pytest.approx([0.75]),
    ]
    assert token.metrics["policy/importance_truncated_share"] == 0.25
    assert token.metrics["policy/importance_mean"] == pytest.approx((2 + 0.5 + 2.5 + 0.75) / 4)
    raw = np.array([2, 0.5, 3, 0.75])
    assert token.metrics["policy/importance_ess_share"] == pytest.approx(raw.sum() ** 2 / (raw**2).sum() / 4)
    sequence = importance_of(p, q, [0, 0, 1], "sequence", np.inf)
    assert [w.tolist() for w in sequence.weights] == [
        pytest.approx([3.0] * 2),
        pytest.approx([3]),
        pytest.approx([0.75]),
    ]
    assert importance_of([np.full(900, -1.0)], [np.full(900, -9.0)], [0], "sequence", 2.0).weights[0].max() == 2
    gap = gap_metrics(np.concatenate(p), np.concatenate(q))
    ratio = np.array([2, 0.5, 3, 0.75])
    assert gap["policy/sampler_gap_nats"] == pytest.approx(np.abs(np.log(ratio)).mean())
    assert gap["policy/sampler_gap_max_nats"] == pytest.approx(np.log(3))
    assert gap["policy/sampler_kl_nats"] == pytest.approx((ratio - 1 - np.log(ratio)).mean())


def test_what_cannot_be_weighed_is_said():
    one = [np.zeros(1)]
    with pytest.raises(ImportanceError, match="'turn': expected token or sequence"):
        importance_of(one, one, [0], "turn", 2.0)
    with pytest.raises(ImportanceError, match=r"is 0\.5, expected at least 1"):
        importance_of(one, one, [0], "token", 0.5)
    with pytest.raises(ImportanceError, match=r"episode 7 .* at decision token 1"):
        importance_of([np.zeros(2)], [np.array([0, np.nan])], [7], "token", 2.0)


def paid(trajectories):
    """An advantage for every other episode, positive and negative, none where the policy did not decide."""
    return [t.credit_mask * float((-1) ** (i // 2)) * (i % 2) for i, t in enumerate(trajectories)]


def moved(model, scale=0.02):
    """The model a few steps later."""
    later = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in later.parameters():
            weight.add_(scale * torch.randn(weight.shape, generator=generator))
    return later


def updater(model, **loss):
    return Updater(model, torch.optim.SGD(model.parameters(), lr=0.1), LossConfig(**loss), OptimizerConfig())


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_on_policy_an_update_with_weights_is_the_update_without(model, sampled_trajectories, level):
    plain, weighted = copy.deepcopy(model), copy.deepcopy(model)
    updater(plain).update(sampled_trajectories, paid(sampled_trajectories), 0.1, 0)
    metrics = updater(weighted, importance=level).update(
        sampled_trajectories, paid(sampled_trajectories), 0.1, 0, apart=True
    )
    for one, other in zip(plain.parameters(), weighted.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)  # float32, and sampling ran in another order
    assert metrics["policy/importance_ess_share"] == pytest.approx(1, abs=1e-4)
    assert metrics["policy/sampler_kl_nats"] < 1e-6


def test_the_clip_is_against_the_policy_at_the_start_of_the_step(model, sampled_trajectories):
    plain = updater(moved(model)).update(sampled_trajectories, paid(sampled_trajectories), 0.1, 0, apart=True)
    token = updater(moved(model), importance="token").update(
        sampled_trajectories, paid(sampled_trajectories), 0.1, 0, apart=True
    )
    assert plain["policy/clip_share"] > 0.02
    assert token["policy/clip_share"] == 0
    assert token["policy/sampler_gap_nats"] == pytest.approx(plain["policy/sampler_gap_nats"], rel=1e-3)
    assert token["policy/sampler_gap_max_nats"] == pytest.approx(plain["policy/sampler_gap_max_nats"], rel=1e-3)
    assert token["policy/sampler_kl_nats"] == pytest.approx(plain["policy/sampler_kl_nats"], rel=1e-3)
    assert 0 < token["policy/importance_ess_share"] < 0.999


def test_without_need_there_is_no_second_pass(model, sampled_trajectories):
    metrics = updater(model, importance="token").update(sampled_trajectories, paid(sampled_trajectories), 0.1, 0)
    assert "policy/importance_mean" not in metrics


@pytest.mark.parametrize("micro_tokens", [64, 16_384])
def test_only_decision_tokens_enter_a_weight(model, expert_trajectories, micro_tokens):
    """Sums over the decision tokens alone, taken from one long forward pass, are the logarithms of sequence weights."""
    rng = np.random.default_rng(0)
    lived = [
        replace(t, logprobs=np.where(t.credit_mask, -6 - 0.1 * rng.random(len(t)), np.nan).astype(np.float32))
        for t in expert_trajectories
    ]
    later, advantages = moved(model), paid(lived)
    spender = Updater(
        later,
        torch.optim.SGD(later.parameters(), lr=0.1),
        LossConfig(importance="sequence", importance_cap=float("inf")),
        OptimizerConfig(micro_tokens=micro_tokens),
    )
    rows, _ = spender._weighted(rows_of(lived, advantages))
    found = {row.owner: row.importance_N for row in rows}
    for owner, trajectory in enumerate(lived):
        mask_T = trajectory.credit_mask
        assert trajectory.turns > 1 and not mask_T[trajectory.decisions[0].start :].all()
        assert np.isnan(trajectory.logprobs[~mask_T]).all()  # any of them would make the weight NaN
        if not advantages[owner].any():
            assert (found[owner] == 1).all()
            continue
        with torch.no_grad():
            now = score(later, collate(rows_of([trajectory], [advantages[owner]]))).logprobs_N.double().sum()
        expected = float(now) - float(trajectory.logprobs[mask_T].astype(np.float64).sum())
        assert np.log(found[owner]) == pytest.approx(
            np.full(int(mask_T.sum()), expected), abs=1e-2
        )  # hundreds of float32
        assert abs(expected) > 1
