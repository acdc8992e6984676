"""ProcessReward: what it pays, in which direction, and what its unsafe settings cost. Expectations are exact sums."""

import warnings

import numpy as np
import pytest

from accredit.credit import Call, CallStatus, Group, Recorder, StopReason
from accredit.credit.errors import CreditError
from accredit.credit.functions import Broadcast
from accredit.credit.process import REASONS, ProcessReward, UnsafeChoiceWarning, Verifier, potential_differences
from accredit.credit.process.prices import expected_gradient, measured_prices
from accredit.credit.process.stopping import StoppingProcess

SAFE = {"rules": (), "wrong_decay": 1.0}


def lived(*turns, outcome=0.0, charge=None):
    """Each turn is (tokens, call status or None)."""
    recorder = Recorder()
    recorder.prompt([0])
    for turn, (tokens, status) in enumerate(turns):
        start, end = recorder.decision([1] * tokens, [-1.0] * tokens)
        if status:
            recorder.call(Call(turn, start, end, "", "f", None, CallStatus(status), ""))
        recorder.feedback([2])
    if charge is not None:
        recorder.charge(0, 0, 0.1, "bad", charge)
    return recorder.finish(outcome, StopReason.DONE)


def scored(*scores_of_members):
    """A scorer that gives the i-th member of a group its scores, by identity."""

    def give(members):
        known = dict(zip(map(id, members), scores_of_members, strict=True))
        return lambda trajectory, steps: np.array(known[id(trajectory)], dtype=float)

    return give


def priced(members, scorer=None, **options):
    if scorer is not None:
        options = {"scorers": (scorer(members),), "rules": (), **options}
    return ProcessReward(**options)(Group(tuple(members)))


def test_without_scores_it_is_broadcast():
    members = [lived((2, None), (3, None), outcome=r) for r in (0.0, 1.0, 0.25)]
    for ours, theirs in zip(priced(members), Broadcast()(Group(tuple(members))), strict=True):
        np.testing.assert_allclose(ours.advantage.total, theirs.advantage.total, atol=1e-15)
        np.testing.assert_allclose(ours.credit.total, theirs.credit.total, atol=1e-15)


def test_a_token_gets_the_scores_from_its_step_on_less_those_of_the_group():
    members = [lived((1, None), (2, None)), lived((1, None))]
    one, other = priced(members, scored([1.0, 0.5], [0.2]), w_process=0.5, wrong_decay=1.0)
    # returns 1.5 and .5 against .2 and 0, means .85 and .25, times .5
    assert one.advantage.terms["process"].tolist() == pytest.approx([0, 0.325, 0, 0.125, 0.125, 0])
    assert other.advantage.terms["process"].tolist() == pytest.approx([0, -0.325, 0])
    assert one.credit.terms["process"].sum() == pytest.approx(0.5 * (1.5 - 0.85))
    assert other.credit.terms["process"].sum() == pytest.approx(0.5 * (0.2 - 0.85))


def test_an_episode_without_a_step_is_priced_and_a_scorer_of_another_length_is_refused():
    silent, spoke = priced([lived((0, None)), lived((1, None), outcome=1.0)])
    assert not silent.advantage.total.any() and spoke.advantage.total.any()
    with pytest.raises(CreditError, match=r"gave shape \(3,\) for 1 steps"):
        priced([lived((1, None)), lived((1, None))], lambda _: lambda trajectory, steps: np.zeros(3))


def test_words_before_a_call_share_its_return_and_words_after_it_do_not():
    def talked(status):
        recorder = Recorder()
        recorder.prompt([0])
        recorder.decision([1, 1, 1], [-1.0] * 3)
        recorder.call(Call(0, 2, 3, "", "f", None, CallStatus(status), ""))
        return recorder.finish(0.0, StopReason.DONE)

    failed, _ = priced([talked("nonzero_exit"), talked("ok")], steps="call", w_process=1.0, wrong_decay=1.0)
    assert failed.advantage.terms["process"].tolist() == [0, -0.5, -0.5, 0]


def test_equal_outcomes_still_teach_by_process():
    bad, good = priced([lived((2, "nonzero_exit"), outcome=1.0), lived((2, "ok"), outcome=1.0)])
    assert not bad.advantage.terms["outcome"].any()
    assert bad.advantage.terms["process"].tolist() == [0, -0.25, -0.25, 0]
    assert good.advantage.terms["process"].tolist() == [0, 0.25, 0.25, 0]


def test_a_failed_call_pays_once_by_its_charge_or_by_the_rule():
    members = [lived((1, "nonzero_exit"), charge=0), lived((1, "ok"))]
    by_charge, _ = priced(members)
    assert not by_charge.advantage.terms["process"].any()
    assert by_charge.advantage.terms["charge:bad"].tolist() == [0, -0.1, 0]
    by_rule, _ = priced(members, charged=True, charge_scale=0.0)
    assert by_rule.advantage.total[1] < 0 and "charge:bad" not in by_rule.advantage.terms


def test_a_wrong_outcome_decays_the_process_part_of_the_whole_trajectory():
    members = [lived((1, None), (1, None), outcome=0.0), lived((1, None), (1, None), outcome=1.0)]
    wrong, right = priced(members, scored([0.4, 0.4], [0.4, 0.4]), wrong_decay=0.25, w_process=1.0)
    both = [sum(credit.credit.terms[name].sum() for name in ("process", "decay")) for credit in (wrong, right)]
    assert both == pytest.approx([0.2 - 0.5, 0.8 - 0.5])
    assert not wrong.credit.terms["process"].any()  # the scores were equal; the decay stands apart


def test_the_kl_term_is_a_penalty_on_drift_from_the_reference():
    members = [lived((2, None), outcome=1.0), lived((2, None), outcome=1.0)]

    def reference(trajectory):  # the first member sampled tokens that the reference finds less likely
        return np.full(len(trajectory), -3.0 if trajectory is members[0] else -1.0)

    drifted, near = priced(members, reference=reference, beta=0.05)
    assert drifted.advantage.terms["kl"].tolist() == pytest.approx([0, -0.1, -0.1, 0])
    assert near.advantage.terms["kl"].tolist() == pytest.approx([0, 0.1, 0.1, 0])
    assert "kl" not in priced(members)[0].advantage.terms


def test_the_kl_penalty_has_the_gradient_of_minus_beta_kl():
    process = StoppingProcess()
    beta, shift = 0.1, 0.3

    def reference(trajectory):  # goes on with another probability
        go = 1 / (1 + np.exp(-shift))
        return np.log(np.where(trajectory.token_ids == 1, go, 1 - go))

    def kl(logit):
        go, ref = 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(-shift))
        asked = 1 + go + go**2
        return asked * (go * np.log(go / ref) + (1 - go) * np.log((1 - go) / (1 - ref)))

    exact = -beta * (kl(1e-5) - kl(-1e-5)) / 2e-5
    reward = ProcessReward(w_process=0.0, w_outcome=0.0, beta=beta, reference=reference, clip=None)
    assert 2 * expected_gradient(process, reward, 2)[0] == pytest.approx(exact, abs=1e-6)  # finite difference


def test_differences_of_a_potential_sum_to_nothing_and_steps_without_one_keep_the_last():
    assert potential_differences(np.array([0.3, np.nan, 0.9, 0.4])).tolist() == pytest.approx([0.3, 0, 0.6, -0.9])
    assert potential_differences(np.array([0.8])).tolist() == [0]
    assert potential_differences(np.array([])).tolist() == []


@pytest.mark.parametrize("phi", [(5.0, -2.0, 1.0), (0.0, 0.0, 9.0), (-1.0, 0.0, 0.0)])
def test_a_potential_leaves_the_gradient_exactly_as_it_was(phi):
    process = StoppingProcess()
    shaped = ProcessReward(**SAFE, form="potential", clip=None, scorers=(Verifier(lambda _, turn: phi[turn]),))
    assert 2 * expected_gradient(process, shaped, 2) == pytest.approx(process.policy_gradient())


def test_the_decay_keeps_the_gradient_of_the_decayed_objective():
    process = StoppingProcess(turns=2)
    scorer = Verifier(lambda _, turn: 0.6 + turn)
    reward = ProcessReward(rules=(), scorers=(scorer,), w_process=0.3, wrong_decay=0.5, right_from=2.0, clip=None)

    def objective(logit):
        total = 0.0
        for probability, t in StoppingProcess(turns=2, go=1 / (1 + np.exp(-logit))).enumerate():
            paid = t.turn_rewards.sum()
            decay = 1.0 if paid >= 2 else 0.5
            total += probability * (paid + 0.3 * decay * sum(0.6 + k for k in range(t.turns)))
        return total

    exact = (objective(1e-5) - objective(-1e-5)) / 2e-5
    assert 2 * expected_gradient(process, reward, 2)[0] == pytest.approx(exact, abs=1e-6)  # finite difference


def test_the_stopping_process_knows_its_values_and_gradient():
    process = StoppingProcess(turns=3, go=0.4, pay=0.7)
    lives = list(process.enumerate())
    assert sum(p for p, _ in lives) == pytest.approx(1)
    by_score = sum(p * t.turn_rewards.sum() * process.score(t).sum() for p, t in lives)
    assert by_score == pytest.approx(process.policy_gradient()[0])
    assert sum(p * t.turn_rewards.sum() for p, t in lives) == pytest.approx(process.values(lives[0][1])[0])
    for _, trajectory in lives:
        values = process.values(trajectory)
        prefix = [(p, t) for p, t in lives if t.token_ids[:3].tolist() == trajectory.token_ids[:3].tolist()]
        if len(trajectory) >= 3:
            mean = sum(p * t.turn_rewards.sum() for p, t in prefix) / sum(p for p, _ in prefix)
            assert values[3] == pytest.approx(mean)
        assert values[-1] == pytest.approx(trajectory.reward)


@pytest.fixture(scope="module")
def prices():
    found = measured_prices()
    for price in found:
        print(price)
    return {price.choice: price for price in found}


def test_the_safe_settings_cost_nothing(prices):
    for price in prices.values():
        if price.exact is not None:
            assert price.safe == pytest.approx(price.exact)


@pytest.mark.parametrize("how", ["position", "group"])
def test_standardised_steps_are_blind_to_the_decision_to_stop(prices, how):
    price = prices[f"normalise='{how}', stopping"]
    assert price.exact == pytest.approx(0.378, abs=5e-4)  # the figure's own digits
    assert price.unsafe == pytest.approx(0, abs=1e-9)


def test_standardising_differences_of_a_potential_turns_the_gradient_round(prices):
    price = prices["normalise='position', form='potential'"]
    assert price.unsafe == pytest.approx(-0.017, abs=5e-4)
    assert price.exact > 0


def test_a_window_of_5_leaves_a_fifth_and_gives_two_fifths_to_the_next_tokens(prices):
    assert prices["window=5, kept by the key token"].unsafe == pytest.approx(0.2)
    assert prices["window=5, gone to the two next to it"].unsafe == pytest.approx(0.4)
    assert prices["window=5, gone to the two next to it"].safe == 0


def test_clipping_after_standardising_takes_three_quarters_of_a_rare_success(prices):
    price = prices["clip_at='advantage', 1 success of 64"]
    assert 1 - price.unsafe == pytest.approx(0.75, abs=5e-3)  # 2 of sqrt(63)
    assert price.safe == 1


def test_short_sight_is_another_objective(prices):
    price = prices["gamma=0, stopping"]
    assert price.unsafe < 0.7 * price.exact


def test_the_clip_bounds_what_a_token_is_paid_before_the_baseline():
    members = [lived((1, None), outcome=0.0), lived((1, None), outcome=10.0)]
    low, high = priced(members)
    assert (low.advantage.total[1], high.advantage.total[1]) == (-1.0, 1.0)
    unclipped = priced(members, clip=None)[1]
    assert unclipped.advantage.total[1] == 5.0


@pytest.mark.parametrize(
    ("choice", "options"),
    [
        ("position", {"normalise": "position"}),
        ("group", {"normalise": "group"}),
        ("shaping", {"normalise": "group", "form": "potential"}),
        ("window", {"window": 5}),
        ("clip", {"clip_at": "advantage"}),
        ("gamma", {"gamma": 0.5}),
        ("charged", {"charged": True}),
    ],
)
def test_an_unsafe_choice_warns_with_its_reason(choice, options):
    with pytest.warns(UnsafeChoiceWarning) as heard:
        ProcessReward(**options)
    assert REASONS[choice] in [str(each.message) for each in heard]


def test_the_defaults_and_the_recommended_start_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ProcessReward()
        assert ProcessReward.recommended().steps == "call"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": ("formt",)}, "no rule 'formt': expected some of format, validity, execution"),
        ({"w_process": -1.0}, "w_process=-1.0: expected a number of at least 0"),
        ({"gamma": 1.5}, r"gamma=1.5: expected a number in \[0, 1\]"),
        ({"clip": 0.0}, "clip=0.0: expected a number above 0"),
        ({"form": "sum"}, "form='sum': expected 'additive' or 'potential'"),
        ({"normalise": "std"}, "normalise='std': expected one of none, group, position"),
        ({"steps": "line"}, "pass token_bytes"),
        ({"window": 2}, "window=2: expected an odd number"),
    ],
)
@pytest.mark.filterwarnings("ignore::accredit.credit.process.UnsafeChoiceWarning")
def test_an_option_out_of_range_is_explained(options, message):
    with pytest.raises(CreditError, match=message):
        ProcessReward(**options)


@pytest.mark.parametrize(
    "first", ["credit.process.function", "credit.process", "credit.functions", "credit.process.steps"]
)
def test_every_module_can_be_imported_first(first):
    import subprocess
    import sys

    code = f"import accredit.{first}; from accredit.credit.process import ProcessReward; ProcessReward()"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
