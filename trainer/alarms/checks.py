"""The alarms: for each symptom the numbers it is read from, its threshold, and what to do about it.

A check reads smoothed metrics and returns a finding, the evidence in words with the threshold beside it, or None.
Thresholds are of the kind that a healthy run stays clear of; they are advice, not axioms, except for the gradient on
masked tokens, which must be exactly 0.
"""

from collections.abc import Callable
from typing import NamedTuple

from .readings import Readings

__all__ = ["CHECKS", "Check", "Finding"]

SETTLED = 5  # readings before a mean is trusted
TREND = 10  # readings before a trend is
FAR_OFF_NATS = 0.1  # at a ratio of 1.5 either way, where the clip has long taken the gradient, k3 is 0.09
FAR_NATS = 1.0  # a choice of one half that becomes sure is 0.69 away, and that is learning


class Finding(NamedTuple):
    """What was measured, and the threshold that it crossed."""

    evidence: str
    threshold: str


class Check(NamedTuple):
    """One alarm. `find` returns the first finding, None while all is well."""

    name: str
    symptom: str
    find: Callable[[Readings], Finding | None]
    advice: str

    def message(self, finding: Finding) -> str:
        """Return the alarm in one line: symptom, evidence, threshold, advice."""
        return f"{self.symptom}: {finding.evidence} (threshold: {finding.threshold}). {self.advice}"


def _mean(readings: Readings, name: str) -> float | None:
    return readings.ema(name) if readings.count(name) >= SETTLED else None


def _above(readings: Readings, name: str, limit: float, what: str) -> Finding | None:
    mean = _mean(readings, name)
    return Finding(f"{what} is {mean:.3g}", f"above {limit:g}") if mean is not None and mean > limit else None


def _below(readings: Readings, name: str, limit: float, what: str) -> Finding | None:
    mean = _mean(readings, name)
    return Finding(f"{what} is {mean:.3g}", f"below {limit:g}") if mean is not None and mean < limit else None


def _decoupled(readings: Readings) -> Finding | None:
    high = _above(
        readings,
        "health/process_high_wrong_share",
        0.10,
        "the share of episodes with a high process score and a wrong outcome",
    )
    return high or _below(
        readings, "health/process_outcome_correlation", 0.1, "the correlation of process score and outcome"
    )


def _noisy(readings: Readings) -> Finding | None:
    inside = _above(
        readings, "health/process_inside_step_share", 0.5, "the share of the token rewards' variance inside steps"
    )
    norm, spread = readings.slow("optimizer/grad_norm"), readings.deviation("optimizer/grad_norm")
    if inside or norm is None or spread is None or readings.count("optimizer/grad_norm") < TREND:
        return inside
    if spread > 1.0 * norm > 0:
        return Finding(f"the gradient norm is {norm:.3g} with deviation {spread:.3g}", "deviation above the mean")
    return None


def _far(readings: Readings) -> Finding | None:
    paid, rest = _mean(readings, "health/kl_paid_nats"), _mean(readings, "health/kl_rest_nats")
    if paid is None or rest is None or not (paid > FAR_NATS and paid > 2 * rest):
        return None
    return Finding(
        f"drift from the reference is {paid:.3g} nats on rewarded tokens and {rest:.3g} on the others",
        f"above {FAR_NATS:g} nat and twice the others",
    )


def _skewed(readings: Readings) -> Finding | None:
    flat = _above(readings, "rollout/no_spread_share", 0.8, "the share of groups whose rewards are all equal")
    if flat:
        return flat
    for name, limit, what in (
        ("health/advantage_lean", 1.0, "the mean advantage, in spreads,"),
        ("health/advantage_skew", 5.0, "the skew of the advantages"),
        ("health/advantage_tilt", 1.0, "the advantage of early tokens over late ones, in spreads,"),
    ):
        mean = _mean(readings, name)
        if mean is not None and abs(mean) > limit:
            return Finding(f"{what} is {mean:.3g}", f"beyond {limit:g} either way")
    return None


def _split(readings: Readings) -> Finding | None:
    for size, number in (("turn", "rollout/turns"), ("call", "rollout/calls")):
        name = f"health/tokens_per_{size}"
        now, then = _mean(readings, name), readings.start(name)
        many, few = _mean(readings, number), readings.start(number)
        if None in (now, then, many, few) or readings.count(name) < TREND:
            continue
        assert now is not None and then is not None and many is not None and few is not None
        if now < 0.6 * then and many > 1.2 * few:
            return Finding(
                f"tokens a {size} went from {then:.3g} to {now:.3g} while {size}s went from {few:.3g} to {many:.3g}",
                "below 0.6 of the start, with 1.2 times as many",
            )
    return None


def _one_sign(readings: Readings) -> Finding | None:
    sign = _above(readings, "health/credit_one_sign_share", 0.98, "the share of credited tokens with one sign")
    spread, flat = _mean(readings, "credit/spread"), _mean(readings, "rollout/no_spread_share")
    if sign or spread is None or flat is None:
        return sign
    return Finding("credit has no spread although rewards have", "spread of 0") if spread == 0 and flat < 1 else None


def _scales(readings: Readings) -> Finding | None:
    credit, baseline = _mean(readings, "health/credit_scale"), _mean(readings, "health/baseline_scale")
    if not credit or not baseline or 1 / 20 <= credit / baseline <= 20:
        return None
    return Finding(f"credit has scale {credit:.3g} and its baseline {baseline:.3g}", "a ratio beyond 20")


def _diverging(readings: Readings) -> Finding | None:
    clipped = _above(readings, "policy/clip_share", 0.3, "the share of decision tokens whose gradient was clipped away")
    if clipped:
        return clipped
    for name, what in (("optimizer/grad_norm", "the gradient norm"), ("health/credit_scale", "credit's scale")):
        now, usual = readings.last(name), readings.usual(name, TREND)
        if now is not None and usual is not None and now > 5 * usual:
            return Finding(f"{what} jumped to {now:.3g} from about {usual:.3g}", "5 times its mean before")
    return None


def _collapsing(readings: Readings) -> Finding | None:
    fast, slow = readings.ema("policy/entropy_nats"), readings.slow("policy/entropy_nats")
    if fast is None or slow is None or readings.count("policy/entropy_nats") < TREND:
        return None
    if slow > 0.05 and fast < 0.5 * slow:
        return Finding(f"entropy fell to {fast:.3g} nats a token from about {slow:.3g}", "half within 20 steps")
    return None


def _late(readings: Readings) -> Finding | None:
    return _below(
        readings, "health/credit_late_energy", 0.01, "the share of the credit's energy in the last 3 tenths of episodes"
    )


def _masked(readings: Readings) -> Finding | None:
    share = readings.last("health/masked_gradient_share")
    if not share:
        return None
    return Finding(f"{share:.2g} of the gradient's weight lies on tokens that the policy did not write", "exactly 0")


def _apart(readings: Readings) -> Finding | None:
    if readings.last("rollout/staleness_max"):
        return None  # they are meant to differ; `_stale` says when by too much
    gap = _above(
        readings, "policy/sampler_gap_nats", 0.05, "the mean difference of sampler's and trainer's log-probabilities"
    )
    return gap or _above(readings, "policy/clip_share", 0.2, "the share clipped by importance weights")


def _stale(readings: Readings) -> Finding | None:
    if not readings.last("rollout/staleness_max"):
        return None
    return (
        _above(
            readings,
            "policy/sampler_kl_nats",
            FAR_OFF_NATS,
            "the KL divergence, a token, of the policy that lived the episodes from the one that learns from them",
        )
        or _below(readings, "policy/importance_ess_share", 0.5, "the effective sample size of the importance weights")
        or _above(readings, "policy/importance_truncated_share", 0.2, "the share of truncated importance weights")
    )


def _failing(readings: Readings) -> Finding | None:
    name = "rollout/infrastructure_rate"
    mean = readings.slow(name) if readings.count(name) >= SETTLED else None  # a lone fault in a small step is none
    if mean is None or mean <= 0.01:
        return None
    return Finding(f"the share of episodes that a machine's failure ended is {mean:.3g}", "above 0.01")


CHECKS: tuple[Check, ...] = (
    Check(
        "process_decoupled",
        "process score decoupled from outcome",
        _decoupled,
        "Lower w_process, decay wrong outcomes more (wrong_decay), and read the episodes with the highest process sums",
    ),
    Check(
        "noisy_rewards",
        "noisy token rewards",
        _noisy,
        "Go back to step level (back_to_steps), larger groups, or a smaller w_process",
    ),
    Check(
        "far_from_reference",
        "reward taken far from the reference",
        _far,
        "Raise loss.kl, and look at what the rewarded tokens say: the reward may be paid for a trick",
    ),
    Check(
        "skewed_advantages",
        "skewed advantages",
        _skewed,
        "Tasks may be too hard or too easy (another level, larger groups), or charges outweigh the outcome "
        "(credit.charge_scale)",
    ),
    Check(
        "steps_split",
        "steps are being split",
        _split,
        "A score for each step is being farmed: raise least_tokens, or use form='potential', which pays nothing for "
        "the number of steps",
    ),
    Check(
        "credit_one_sign",
        "credit is all of one sign, or constant",
        _one_sign,
        "The usual causes: no baseline, or a credit function that lost what is known at each prefix. Try 'anchored'",
    ),
    Check(
        "scales_apart",
        "credit and baseline are on different scales",
        _scales,
        "Success is very rare or nearly certain, or the baseline is not that of these rewards: change the level, or "
        "check what the credit function subtracts",
    ),
    Check(
        "policy_diverging",
        "the policy is diverging",
        _diverging,
        "Lower optimizer.lr or optimizer.epochs, and go back to a checkpoint from before",
    ),
    Check(
        "entropy_falling",
        "entropy is falling fast",
        _collapsing,
        "Lower optimizer.lr, raise loss.kl or loss.clip_high, and check that the reward cannot be had by one phrase",
    ),
    Check(
        "late_credit_vanishing",
        "late credit is vanishing",
        _late,
        "Check that episodes end by themselves and are scored then; a discount below 1 or a critic that forgets also "
        "does this",
    ),
    Check(
        "masked_gradient",
        "gradient on masked tokens (the usual cause of reward that falls while feedback is long)",
        _masked,
        "The credit function pays tokens of the environment: multiply its advantage by trajectory.credit_mask",
    ),
    Check(
        "sampler_apart",
        "sampler and trainer disagree",
        _apart,
        "Check precision (model.dtype), that the engine got the last weights, and that temperature is 1",
    ),
    Check(
        "too_stale",
        "episodes are too far off policy",
        _stale,
        "Lower rollout.max_staleness or optimizer.lr; with loss.importance=none set it to token, with sequence go back "
        "to token, whose weights vary less",
    ),
    Check(
        "infrastructure_failing",
        "machines fail under the episodes",
        _failing,
        "Nobody is charged and what is lost is unscored, but the step shrinks: read `error` in the stored episodes, "
        "and look at the sandbox (accredit sandbox doctor, the /health of its server)",
    ),
)
