"""Every alarm fires on a run built to trigger it, and none on a healthy one."""

import json
import logging
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from accredit.credit import Call, CallStatus, Credit, Group, Ledger, Recorder, StopReason
from accredit.credit.functions import credit_function
from accredit.credit.process import ProcessReward, Verifier
from accredit.trainer.alarms import CHECKS, Monitor, Readings
from accredit.trainer.alarms.monitor import SMOOTHED
from accredit.trainer.config import LossConfig, OptimizerConfig
from accredit.trainer.health import step_metrics
from accredit.trainer.update import Updater

UPDATE = {
    "rollout/infrastructure_rate": 0.0,
    "optimizer/grad_norm": 0.5,
    "policy/clip_share": 0.02,
    "policy/sampler_gap_nats": 1e-5,
    "loss/kl": 0.01,
    "health/kl_paid_nats": 0.02,
    "health/kl_rest_nats": 0.02,
}


def episode(rng, success=0.5, turns=4, tokens=6, outcome=None):
    """Each turn is a call of `tokens` tokens; the state is right while every turn's first token is 1."""
    recorder = Recorder(state_key="0:right")
    recorder.prompt([0])
    right = True
    for turn in range(turns):
        chosen = rng.random() < success ** (1 / turns)
        right &= bool(chosen)
        start, end = recorder.decision([1 if chosen else 2, *rng.integers(3, 6, tokens - 1)], -rng.random(tokens))
        recorder.call(Call(turn, start, end, "", "f", {}, CallStatus.OK, ""))
        recorder.feedback([9])
        recorder.state_key(f"{turn + 1}:{'right' if right else 'wrong'}")
    return recorder.finish(float(right) if outcome is None else outcome, StopReason.DONE)


def healthy_groups(rng, **how):
    return [Group(tuple(episode(rng, **how) for _ in range(8))) for _ in range(4)]


@cache
def usual_groups(step):
    return healthy_groups(np.random.default_rng(step))


@cache
def usual_metrics(step, function):
    return measured(usual_groups(step), credit_function(function))


def measured(groups, price):
    credits = [credit for group in groups for credit in price(group)]
    return step_metrics([t for group in groups for t in group.trajectories], credits, groups) | UPDATE


def run(changes=None, steps=12, function="anchored", price=None, groups=None):
    """Watch `steps` steps; `changes` are numbers, or functions of the step, that replace metrics. Return what fires."""
    rng = np.random.default_rng(0)
    monitor, fired = Monitor(), []
    for step in range(steps):
        if price or groups:
            lived = groups(rng, step) if groups else usual_groups(step % 6)
            metrics = measured(lived, price or credit_function(function))
        else:
            metrics = usual_metrics(step % 6, function)
        metrics = metrics | {name: value(step) if callable(value) else value for name, value in (changes or {}).items()}
        added = monitor.observe(step + 1, metrics)
        fired.append(added.get("alarms", {}))
        assert added["health/alarms"] == len(fired[-1])
    return fired


def assert_only(name, fired):
    """Check that this alarm fires at the end, and alone."""
    assert set(fired[-1]) == {name}
    return fired[-1][name]


@pytest.mark.parametrize("function", ["broadcast", "grpo", "rloo", "anchored"])
def test_a_healthy_run_raises_no_alarm(function):
    assert not any(run(function=function))


def truthful(t, turn):
    return float(t.token_ids[t.decisions[turn].start] == 1)


def flattering(t, turn):
    return float(t.token_ids[t.decisions[turn].start] == 2)


def length_loving(t, turn):
    return float(t.token_ids[t.decisions[turn].start + 1])


def process(judge, **options):
    return ProcessReward(rules=(), scorers=(Verifier(judge),), **options)


def test_a_healthy_run_with_process_rewards_raises_no_alarm():
    assert not any(run(price=process(truthful)))


@pytest.mark.parametrize("judge", [flattering, length_loving])
def test_a_process_score_that_does_not_follow_the_outcome(judge):
    message = assert_only("process_decoupled", run(price=process(judge, w_process=0.2, clip=None)))
    assert "threshold: " in message and "w_process" in message


def with_noise(group):
    rng = np.random.default_rng(1)
    noisy = []
    for t, credit in zip(group.trajectories, credit_function("anchored")(group), strict=True):
        noise_T = np.where(t.credit_mask, rng.normal(0, 0.3, len(t)) + 0.2 * (t.reward - 0.5), 0)
        noisy.append(Credit(Ledger(len(t), {**credit.credit.terms, "process": noise_T}), credit.advantage))
    return tuple(noisy)


def test_rewards_that_vary_inside_a_step():
    assert "inside steps" in assert_only("noisy_rewards", run(price=with_noise))


def test_a_gradient_norm_all_over_the_place():
    message = run({"optimizer/grad_norm": lambda step: 4.0 if step % 8 == 7 else 0.1})[-1]["noisy_rewards"]
    assert "gradient norm" in message


def test_rewarded_tokens_far_from_the_reference():
    assert_only("far_from_reference", run({"health/kl_paid_nats": 1.4, "health/kl_rest_nats": 0.05}))


def test_a_policy_that_learns_moves_where_it_is_paid_and_that_is_no_alarm():
    """As far as the quickstart moves: decisions of one half that become nearly sure are log 2 = 0.69 nats away."""
    assert not any(run({"health/kl_paid_nats": 0.69, "health/kl_rest_nats": 0.01}))


def test_groups_that_teach_nothing():
    def hopeless(rng, step):
        return [Group(tuple(episode(rng, outcome=float(g == 0 and m == 0)) for m in range(8))) for g in range(8)]

    assert "all equal" in run(groups=hopeless)[-1]["skewed_advantages"]


@pytest.mark.parametrize("lean", [0.8, -0.8])
def test_advantages_that_lean_to_one_side(lean):
    def leaning(group):
        return [
            Credit(c.credit, Ledger(len(t), {"outcome": np.where(t.credit_mask, c.advantage.total + lean, 0.0)}))
            for t, c in zip(group.trajectories, credit_function("broadcast")(group), strict=True)
        ]

    assert_only("skewed_advantages", run(price=leaning))


def test_steps_that_shrink_while_they_become_more():
    begun, split, short = (
        [Group(tuple(episode(np.random.default_rng(i), turns=turns, tokens=tokens) for i in range(6)))]
        for turns, tokens in ((4, 6), (12, 2), (4, 2))
    )
    found = run(steps=14, price=credit_function("broadcast"), groups=lambda _, step: begun if step < 6 else split)
    assert "while turns went from 4" in assert_only("steps_split", found)
    assert not any(
        run(steps=14, price=credit_function("broadcast"), groups=lambda _, step: begun if step < 6 else short)
    )  # shorter, no more of them: no farming


def test_credit_without_a_baseline():
    def unbaselined(group):
        priced = []
        for t in group.trajectories:
            credit_T = np.where(t.credit_mask, t.reward / t.credit_mask.sum(), 0.0)
            priced.append(Credit(Ledger(len(t), {"outcome": credit_T}), Ledger(len(t), {"outcome": credit_T.copy()})))
        return priced

    assert "one sign" in run(price=unbaselined)[-1]["credit_one_sign"]


def test_credit_without_a_spread():
    def lost(group):
        zero = [Ledger(len(t), {"outcome": np.zeros(len(t))}) for t in group.trajectories]
        return [Credit(each, each) for each in zero]

    assert "no spread although rewards have" in assert_only("credit_one_sign", run(price=lost))


def test_credit_on_another_scale_than_its_baseline():
    def scaled(group):
        return [
            Credit(
                Ledger(len(t), {**c.credit.terms, "process": 60 * c.credit.terms["outcome"]}),
                c.advantage,
            )
            for t, c in zip(group.trajectories, credit_function("broadcast")(group), strict=True)
        ]

    assert "scales_apart" in run(price=scaled)[-1]


def test_a_policy_that_diverges():
    assert set(run({"policy/clip_share": 0.5})[-1]) == {"policy_diverging", "sampler_apart"}
    jump = run({"optimizer/grad_norm": lambda step: 0.5 if step < 19 else 20.0}, 20)
    assert "jumped to 20" in jump[-1]["policy_diverging"]
    assert not any(jump[:-1])


@pytest.mark.parametrize("name", ["optimizer/grad_norm", "health/credit_scale"])
@pytest.mark.parametrize("before", [10, 20, 60])
def test_a_jump_is_measured_against_the_steps_before_it(name, before):
    fired = {}
    for jump in (4.9, 5.1):
        monitor = Monitor()
        for step in range(before):
            monitor.observe(step + 1, {name: 1.0})
        fired[jump] = "policy_diverging" in monitor.observe(before + 1, {name: jump}).get("alarms", {})
    assert fired == {4.9: False, 5.1: True}


def test_a_success_now_and_then_is_no_divergence():
    monitor = Monitor()
    for step in range(60):
        scale = 0.1 if step % 7 == 6 else 0.0
        added = monitor.observe(step + 1, {"health/credit_scale": scale, "optimizer/grad_norm": scale or float("nan")})
        assert "alarms" not in added


def test_a_step_without_a_signal_has_no_gradient_norm(model, sampled_trajectories):
    silent = [np.zeros(len(t)) for t in sampled_trajectories]
    assert np.isnan(_without_reference(model).update(sampled_trajectories, silent, 0.1, 0)["optimizer/grad_norm"])


def test_entropy_that_falls_fast():
    message = assert_only("entropy_falling", run({"policy/entropy_nats": lambda step: 1.0 if step < 14 else 0.05}, 20))
    assert "nats a token" in message
    assert not any(run({"policy/entropy_nats": lambda step: 1.0 * 0.98**step}, 60))


def test_late_credit_that_vanishes():
    def early_only(group):
        priced = []
        for t, credit in zip(group.trajectories, credit_function("broadcast")(group), strict=True):
            fading_T = credit.credit.total * np.exp(-np.arange(len(t)) / 2)
            fading_T *= credit.credit.total.sum() / (fading_T.sum() or 1.0)
            priced.append(Credit(Ledger(len(t), {"outcome": fading_T}), credit.advantage))
        return priced

    assert_only("late_credit_vanishing", run(price=early_only))


def test_a_long_last_answer_of_the_environment_takes_no_credit_from_late_decisions():
    def with_answer(rng):
        recorder = Recorder()
        recorder.prompt([0] * 5)
        for _ in range(3):
            recorder.decision([1, 2], -rng.random(2))
            recorder.feedback([9] * 40)
        return recorder.finish(float(rng.integers(2)), StopReason.DONE)

    rng = np.random.default_rng(0)
    groups = [Group(tuple(with_answer(rng) for _ in range(8)))]
    found = measured(groups, credit_function("broadcast"))
    assert found["health/credit_late_energy"] == pytest.approx(1 / 3)
    short = measured(
        [Group(tuple(episode(rng, turns=1, tokens=1, outcome=i) for i in range(2)))], credit_function("rloo")
    )
    assert short["health/credit_late_energy"] == 1


def test_gradient_on_masked_tokens_at_once():
    def leaking(group):
        return [
            Credit(c.credit, Ledger(len(t), {"outcome": c.advantage.total + 1e-9 * ~t.credit_mask}))
            for t, c in zip(group.trajectories, credit_function("broadcast")(group), strict=True)
        ]

    fired = run(steps=1, price=leaking)
    assert "trajectory.credit_mask" in assert_only("masked_gradient", fired)


def test_a_sampler_that_disagrees_with_the_trainer():
    assert "log-probabilities" in assert_only("sampler_apart", run({"policy/sampler_gap_nats": 0.2}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy/sampler_kl_nats": 0.3}, "KL divergence, a token"),
        ({"policy/importance_ess_share": 0.2}, "effective sample size"),
        ({"policy/importance_truncated_share": 0.4}, "truncated importance weights"),
    ],
)
def test_episodes_that_are_too_far_off_policy(changes, words):
    stale = {"rollout/staleness_max": 4.0, "policy/sampler_gap_nats": 0.2}  # a gap is what staleness is
    assert words in assert_only("too_stale", run({**stale, **changes}))
    assert not any(run(stale))
    assert "too_stale" not in run({**changes, "rollout/staleness_max": 0.0})[-1]


def test_machines_that_fail_under_more_than_one_episode_in_a_hundred():
    assert "is 0.02" in assert_only("infrastructure_failing", run({"rollout/infrastructure_rate": 0.02}))
    assert not any(run({"rollout/infrastructure_rate": 0.009}))
    assert not any(run({"rollout/infrastructure_rate": lambda step: 0.03 if step == 15 else 0.0}, 30))


def test_every_alarm_says_symptom_evidence_threshold_and_advice():
    assert len({check.name for check in CHECKS}) == len(CHECKS) == 14
    fired = run({"policy/sampler_gap_nats": 0.2})[-1]["sampler_apart"]
    assert fired.startswith("sampler and trainer disagree: the mean difference")
    assert "is 0.2 (threshold: above 0.05). Check precision" in fired


def test_an_alarm_is_logged_when_it_begins_and_every_20_steps(caplog):
    with caplog.at_level(logging.WARNING):
        run({"policy/sampler_gap_nats": 0.2}, 30)
    said = [record.getMessage().split(":")[0] for record in caplog.records]
    assert said == ["step 5", "step 25"]


def test_a_number_that_is_not_finite_is_no_reading():
    readings = Readings()
    readings.add({"a": 1.0, "b": float("nan"), "c": None, "d": "x"})
    readings.add({"a": float("inf")})
    assert readings.ema("a") == pytest.approx(1.0) and readings.count("a") == 1
    assert readings.last("a") is None and readings.ema("b") is None


def test_the_averages_are_free_of_their_start():
    readings = Readings()
    for _ in range(3):
        readings.add({"a": 2.0})
    assert [readings.ema("a"), readings.slow("a"), readings.start("a")] == pytest.approx([2.0] * 3)
    assert readings.deviation("a") == pytest.approx(0, abs=1e-7)  # a root of rounding
    readings.add({"a": 4.0})
    ema, slow = readings.ema("a"), readings.slow("a")
    assert ema is not None and slow is not None and 4 > ema > slow > 2


def test_a_resumed_run_smooths_on_from_its_history():
    lines = [{"step": step, "rollout/reward": step / 10, "loss/kl": None} for step in range(1, 8)]
    whole, resumed = Monitor(), Monitor()
    expected = [whole.observe(line["step"], line) for line in lines][-1]
    resumed.replay([{"step": 0, "eval/success": 0.1}, *lines], until=6)
    assert resumed.observe(7, lines[-1]) == expected


def test_metrics_are_written_smoothed_and_are_json():
    metrics = usual_metrics(0, "anchored")
    added = Monitor().observe(1, metrics)
    assert {f"ema/{name}" for name in SMOOTHED} <= set(added)
    assert added["ema/rollout/reward"] == pytest.approx(metrics["rollout/reward"])
    json.dumps(added)


def test_the_evidence_counts_what_it_says():
    rng = np.random.default_rng(3)
    groups = [Group(tuple(episode(rng, outcome=float(i % 2)) for i in range(4)))]
    metrics = step_metrics(list(groups[0].trajectories), credit_function("broadcast")(groups[0]), groups)
    assert metrics["health/tokens_per_turn"] == metrics["health/tokens_per_call"] == 6
    assert metrics["health/token_reward_mean"] == pytest.approx(0.5 / 24)
    assert metrics["health/credit_scale"] == pytest.approx(0.5)
    assert metrics["health/baseline_scale"] == pytest.approx(0.5)
    energies = [metrics[f"health/credit_energy_decile_{decile}"] for decile in range(10)]
    assert sum(energies) == pytest.approx(1) and min(energies) > 0
    assert metrics["health/masked_gradient_share"] == 0
    assert np.isnan(metrics["health/process_outcome_correlation"])


def test_drift_on_rewarded_tokens_is_measured_apart_from_the_rest(model, sampled_trajectories):
    import torch

    rewarded, other = sampled_trajectories[:2]
    paid = [np.where(t.credit_mask, 1.0 if t is rewarded else -1.0, 0.0) for t in (rewarded, other)]
    updater = Updater(model, torch.optim.SGD(model.parameters(), lr=3.0), LossConfig(kl=1e-6), OptimizerConfig())
    first, last = (updater.update([rewarded, other], paid, 3.0, seed) for seed in range(2))
    assert first["health/kl_paid_nats"] == pytest.approx(0, abs=1e-5)  # float32
    assert last["health/kl_paid_nats"] > 1e-3 > last["health/kl_rest_nats"]
    assert "health/kl_paid_nats" not in _without_reference(model).update([rewarded], paid[:1], 0.1, 0)


def _without_reference(model):
    import torch

    return Updater(model, torch.optim.SGD(model.parameters(), lr=1.0), LossConfig(), OptimizerConfig())


def test_the_page_names_every_alarm_and_every_metric():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "alarms.md").read_text(encoding="utf-8")
    assert [check.name for check in CHECKS if f"`{check.name}`" not in page] == []
    written = {name for name in usual_metrics(0, "anchored") if name.startswith("health/")} | {"health/alarms"}
    assert [name for name in sorted(written) if f"`{name}`" not in page and "decile" not in name] == []
