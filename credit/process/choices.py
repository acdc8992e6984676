"""What an unsafe choice costs. Each warning states the figure that a test measures on an exact process."""

import warnings

__all__ = ["REASONS", "UnsafeChoiceWarning", "warn_of"]


class UnsafeChoiceWarning(UserWarning):
    """A setting of a process reward that is known to bias or blur the credit."""


REASONS = {
    "position": (
        "normalise='position' compares a step with the members that got as far, so it is biased when the policy "
        "decides when to stop: on the stopping process the exact gradient is 0.378 and its estimate 0.000. "
        "normalise='none' keeps the direction"
    ),
    "group": (
        "normalise='group' standardises before it weighs, which makes a step worth 0 on average, also where going on "
        "is worth more than stopping: on the stopping process the exact gradient is 0.378 and its estimate 0.000. "
        "normalise='none' keeps the direction"
    ),
    "shaping": (
        "form='potential' with normalise='group' or 'position' is no longer shaping by a potential: standardised "
        "differences do not telescope, and the optimal policy may change: on the stopping process the gradient turns "
        "round, from 0.378 to -0.017. normalise='none' keeps it"
    ),
    "window": (
        "a window of 5 leaves a key token 20 % of its credit and gives 40 % to the tokens next to it (1 / window and "
        "2 / window in general). window=1 does not smooth; `back_to_steps` calms noisy scores without crossing a step"
    ),
    "clip": (
        "clip_at='advantage' clips to [-2, 2] after standardising, which takes 75 % from a success of 1 in 64. "
        "clip_at='reward' clips before the baseline"
    ),
    "gamma": (
        "gamma below 1 pays a step less for what it led to: the gradient is that of a more short-sighted objective. "
        "gamma=1 is the return"
    ),
    "charged": (
        "charged=True with charge_scale above 0 makes a failed call pay twice, by its charge and by the rule. Set "
        "charge_scale to 0, or leave charged calls to their charge"
    ),
}


def warn_of(choice: str) -> None:
    """Warn of an unsafe choice by its name in `REASONS`, at the place that made the credit function."""
    warnings.warn(REASONS[choice], UnsafeChoiceWarning, stacklevel=4)
