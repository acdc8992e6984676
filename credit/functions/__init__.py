"""Credit functions: who is paid for what. Pure functions of a group; numpy only.

`credit_function("anchored", lam=0.5)` makes one by name. A credit function from elsewhere needs no registration: any
callable that fits `CreditFunction` will do, and `credit_function("package.module:name")` finds it.
"""

from .anchored import Anchored
from .broadcast import Broadcast
from .counterfactual import Counterfactual
from .exact import Exact
from .gae import GAE
from .gigpo import GiGPO
from .group import GRPO, RLOO, DrGRPO
from .mt_grpo import MTGRPO
from .prm_broadcast import PRMBroadcast, StepScores
from .registry import CREDIT_FUNCTIONS, credit_function, option_names
from .reinforce import Reinforce
from .states import state_values
from .turn_verifier import TurnVerifier
from .vineppo import VinePPO

__all__ = [
    "CREDIT_FUNCTIONS",
    "GAE",
    "GRPO",
    "MTGRPO",
    "RLOO",
    "Anchored",
    "Broadcast",
    "Counterfactual",
    "DrGRPO",
    "Exact",
    "GiGPO",
    "PRMBroadcast",
    "Reinforce",
    "StepScores",
    "TurnVerifier",
    "VinePPO",
    "credit_function",
    "option_names",
    "state_values",
]
