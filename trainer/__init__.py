"""The training loop, its loss, its checkpoints and its metrics. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import ConfigError, SFTConfig, TrainConfig
    from .config_file import load_config
    from .evaluation import Evaluation
    from .loop import Listener, Result, train
    from .metrics import read_metrics
    from .run import RunDirectory, RunError
    from .sft import SFTResult, warm_start

__all__ = [
    "ConfigError",
    "Evaluation",
    "Listener",
    "Result",
    "RunDirectory",
    "RunError",
    "SFTConfig",
    "SFTResult",
    "TrainConfig",
    "load_config",
    "read_metrics",
    "train",
    "warm_start",
]

_HOMES = {
    "config": ("ConfigError", "SFTConfig", "TrainConfig"),
    "config_file": ("load_config",),
    "evaluation": ("Evaluation",),
    "loop": ("Listener", "Result", "train"),
    "metrics": ("read_metrics",),
    "run": ("RunDirectory", "RunError"),
    "sft": ("SFTResult", "warm_start"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it offers {', '.join(__all__)}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
