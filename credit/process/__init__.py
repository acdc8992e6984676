"""Process rewards: scores of steps, beside the outcome. Needs numpy only.

A trajectory is cut into steps, scorers say how good each is (rules, a verifier, a learned model), and `ProcessReward`
makes credit of them. The settings that are known to be safe are the defaults; the others warn with what they cost.
"""

import accredit.credit.functions  # first: its registry holds ProcessReward, which stands on modules of its own  # noqa: F401

from .choices import REASONS, UnsafeChoiceWarning
from .combine import kl_rewards, potential_differences
from .function import ProcessReward
from .normalise import smooth, standardise
from .rules import RULES, Rule, Verifier
from .scores import Scorer, back_to_steps, token_rewards
from .steps import Grain, Steps, TokenBytes, cut_steps, mean_tokens_per_step, step_count, step_ends, steps_of

__all__ = [
    "REASONS",
    "RULES",
    "Grain",
    "ProcessReward",
    "Rule",
    "Scorer",
    "Steps",
    "TokenBytes",
    "UnsafeChoiceWarning",
    "Verifier",
    "back_to_steps",
    "cut_steps",
    "kl_rewards",
    "mean_tokens_per_step",
    "potential_differences",
    "smooth",
    "standardise",
    "step_count",
    "step_ends",
    "steps_of",
    "token_rewards",
]
