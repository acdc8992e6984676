import copy

import numpy as np
import pytest
import torch

from accredit.trainer.batch import collate, rows_of
from accredit.trainer.config import LossConfig, OptimizerConfig
from accredit.trainer.logprobs import score
from accredit.trainer.update import Updater


def spent(model, trajectories, loss=None, lr=1.0, updates=5, **optimizer):
    """Make updates towards the sampled tokens; return their log-probabilities after it, and the metrics."""
    advantages = [trajectory.credit_mask.astype(np.float64) for trajectory in trajectories]
    updater = Updater(
        model,
        torch.optim.SGD(model.parameters(), lr=lr),
        LossConfig(kind="unclipped", **(loss or {})),
        OptimizerConfig(**optimizer),
    )
    metrics = [updater.update(trajectories, advantages, lr, seed) for seed in range(updates)]
    with torch.no_grad():
        after = score(model, collate(rows_of(trajectories, advantages))).logprobs_N
    return after, metrics


def test_a_positive_advantage_makes_the_sampled_tokens_likelier(model, sampled_trajectories):
    before = np.concatenate([t.logprobs[t.credit_mask] for t in sampled_trajectories])
    after, metrics = spent(model, sampled_trajectories)
    assert after.mean() > before.mean() + 0.01
    assert metrics[0]["policy/sampler_gap_nats"] < 1e-4  # float32, one model
    assert metrics[1]["policy/sampler_gap_nats"] > metrics[0]["policy/sampler_gap_nats"]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_kl_penalty_holds_the_policy_near_its_reference(model, sampled_trajectories, estimator):
    before = torch.from_numpy(np.concatenate([t.logprobs[t.credit_mask] for t in sampled_trajectories]))
    calm = {"lr": 0.05, "updates": 40}
    free, _ = spent(copy.deepcopy(model), sampled_trajectories, **calm)
    held, metrics = spent(model, sampled_trajectories, {"kl": 2.0, "kl_estimator": estimator}, **calm)
    assert (held - before).square().mean() < 0.8 * (free - before).square().mean()
    assert metrics[-1]["loss/kl"] != 0


def test_minibatches_and_epochs_make_as_many_steps(model, sampled_trajectories):
    _, metrics = spent(model, sampled_trajectories, minibatches=2, epochs=3)
    assert metrics[0]["optimizer/steps"] == 6


def test_nothing_to_learn_makes_no_step(model, sampled_trajectories):
    before = [weight.clone() for weight in model.parameters()]
    updater = Updater(model, torch.optim.SGD(model.parameters(), lr=1.0), LossConfig(), OptimizerConfig())
    metrics = updater.update(sampled_trajectories, [np.zeros(len(t)) for t in sampled_trajectories], 1.0, 0)
    assert metrics["optimizer/steps"] == 0
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_a_gradient_that_is_not_finite_steps_nothing_and_says_so(model, sampled_trajectories):
    before = [weight.clone() for weight in model.parameters()]
    updater = Updater(model, torch.optim.SGD(model.parameters(), lr=1.0), LossConfig(), OptimizerConfig())
    huge = [np.where(t.credit_mask, 3e38, 0.0) for t in sampled_trajectories]
    with pytest.raises(FloatingPointError, match="nothing was stepped"):
        updater.update(sampled_trajectories, huge, 1.0, 0)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_an_entropy_bonus_keeps_the_distribution_wider(model, sampled_trajectories):
    _, free = spent(copy.deepcopy(model), sampled_trajectories, updates=30)
    _, wide = spent(model, sampled_trajectories, {"entropy": 1.0}, updates=30)
    assert free[0]["policy/full_entropy_nats"] == pytest.approx(wide[0]["policy/full_entropy_nats"])
    assert wide[-1]["policy/full_entropy_nats"] > free[-1]["policy/full_entropy_nats"] + 0.1


def test_what_rows_share_is_computed_once(model, sampled_trajectories):
    _, (metrics,) = spent(model, sampled_trajectories, updates=1)
    assert metrics["train/row_tokens"] == sum(len(row.token_ids_T) for row in rows_of_all(sampled_trajectories))
    prompts = {tuple(t.token_ids[: t.decisions[0].start]) for t in sampled_trajectories}
    assert len(prompts) == 2
    assert metrics["train/forward_tokens"] < metrics["train/row_tokens"] - 5 * min(len(prompt) for prompt in prompts)


def rows_of_all(trajectories):
    return rows_of(trajectories, [t.credit_mask.astype(np.float64) for t in trajectories])
