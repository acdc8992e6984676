"""A learned process reward model: a scalar head on a `transformers` model that says what a prefix is worth.

Labels come from stored rollouts or from people (`labels`), `fit` trains on them, `ProcessRewardModel` scores steps and
lies in a folder, and `prm_credit` makes credit of its scores in a training run. There is no command for it: the how-to
page on process rewards has the few lines of Python.
"""

from .credit import prm_credit
from .labels import LabelError, Labelled, human_labels, state_value_labels, stored_groups
from .learn import fit
from .model import ProcessRewardModel

__all__ = [
    "LabelError",
    "Labelled",
    "ProcessRewardModel",
    "fit",
    "human_labels",
    "prm_credit",
    "state_value_labels",
    "stored_groups",
]
