"""Credit from a learned process reward model, by name, in a training run.

    credit: {function: "accredit.trainer.prm:prm_credit", options: {model: runs/prm}}

The model's scores are values of prefixes, so they are taken as a potential: they say when the outcome was decided and
move no optimum. The model is loaded once a process and kept.
"""

from functools import lru_cache
from typing import Any

from accredit.credit.process import ProcessReward

from .model import ProcessRewardModel

__all__ = ["prm_credit"]


def prm_credit(model: str, charge_scale: float = 1.0, device: str = "cpu", **options: Any) -> ProcessReward:
    """Return `ProcessReward` over the scores of the model in the folder `model`, as a potential, w_process 0.3.

    `options` are options of `ProcessReward` and replace these.
    """
    chosen: dict[str, Any] = {"form": "potential", "w_process": 0.3, "wrong_decay": 1.0, "rules": (), **options}
    return ProcessReward(scorers=(_loaded(model, device).score,), charge_scale=charge_scale, **chosen)


@lru_cache(maxsize=2)
def _loaded(folder: str, device: str) -> ProcessRewardModel:
    return ProcessRewardModel.load(folder, device)
