import copy

import numpy as np
import pytest
import torch

from accredit.trainer.batch import collate, rows_of
from accredit.trainer.config import LossConfig, OptimizerConfig
from accredit.trainer.logprobs import score
from accredit.trainer.signals import TokenSignals
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


def plain_scores(model, trajectory):
    """The log-probability of every token and the entropy there, from one plain forward pass: [T], first NaN."""
    ids_T = torch.tensor(trajectory.token_ids, dtype=torch.long)
    with torch.no_grad():
        logprobs_TV = model(ids_T[None]).logits[0, :-1].float().log_softmax(-1)
    logprobs_T = logprobs_TV.gather(1, ids_T[1:, None])[:, 0].numpy()
    entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1).numpy()
    return np.concatenate([[np.nan], logprobs_T]), np.concatenate([[np.nan], entropy_T])


@pytest.mark.parametrize("minibatches", [1, 2])
def test_signals_are_those_of_a_plain_forward_pass_before_any_weight_moved(model, sampled_trajectories, minibatches):
    start = copy.deepcopy(model)
    rng = np.random.default_rng(0)
    advantages = [t.credit_mask * rng.choice([0.0, 1.0], len(t), p=[0.3, 0.7]) for t in sampled_trajectories]
    advantages[2] = np.zeros(len(sampled_trajectories[2]))
    signals = TokenSignals(sampled_trajectories)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    config = OptimizerConfig(epochs=2, minibatches=minibatches, micro_tokens=700)
    Updater(model, optimizer, LossConfig(), config).update(sampled_trajectories, advantages, 1.0, 0, signals=signals)
    seen = [owner for owner, columns in enumerate(signals.columns) if np.isfinite(columns["entropy"]).any()]
    assert len(seen) == 7 if minibatches == 1 else 3 <= len(seen) <= 4  # the other half saw moved weights
    for owner in seen:
        trained_T = advantages[owner] != 0
        for values_T, expected_T in zip(
            signals.columns[owner].values(), plain_scores(start, sampled_trajectories[owner]), strict=True
        ):
            np.testing.assert_array_equal(np.isfinite(values_T), trained_T)
            np.testing.assert_allclose(values_T[trained_T], expected_T[trained_T], atol=1e-4)  # float32, two orders


def test_the_pass_for_importance_gives_signals_of_every_decision(model, sampled_trajectories):
    now = copy.deepcopy(model)
    with torch.no_grad():
        now.lm_head.weight.mul_(1.3)
    start = copy.deepcopy(now)
    advantages = [np.where(t.credit_mask, np.arange(len(t)) % 2, 0.0) for t in sampled_trajectories]
    signals = TokenSignals(sampled_trajectories)
    settings = LossConfig(importance="token"), OptimizerConfig(minibatches=2)
    updater = Updater(now, torch.optim.SGD(now.parameters(), lr=1.0), *settings)
    updater.update(sampled_trajectories, advantages, 1.0, 0, apart=True, signals=signals)
    for trajectory, columns in zip(sampled_trajectories, signals.columns, strict=True):
        mask_T = trajectory.credit_mask
        for values_T, expected_T in zip(columns.values(), plain_scores(start, trajectory), strict=True):
            np.testing.assert_allclose(values_T, np.where(mask_T, expected_T, np.nan), atol=1e-4)
        assert np.abs(columns["trainer_logprob"] - trajectory.logprobs)[mask_T].max() > 0.01  # from what sampled it


def test_what_rows_share_is_computed_once(model, sampled_trajectories):
    _, (metrics,) = spent(model, sampled_trajectories, updates=1)
    assert metrics["train/row_tokens"] == sum(len(row.token_ids_T) for row in rows_of_all(sampled_trajectories))
    prompts = {tuple(t.token_ids[: t.decisions[0].start]) for t in sampled_trajectories}
    assert len(prompts) == 2
    assert metrics["train/forward_tokens"] < metrics["train/row_tokens"] - 5 * min(len(prompt) for prompt in prompts)


def rows_of_all(trajectories):
    return rows_of(trajectories, [t.credit_mask.astype(np.float64) for t in trajectories])
