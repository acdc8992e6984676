"""Policies and rollouts: who decides, and how many episodes are lived at once. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .branch import Branch, fork_pairs, live_branches
    from .human import HumanPolicy
    from .models import LoadedModel, ModelError, load_model, load_tokenizer, save_model
    from .openai import OpenAIPolicy
    from .policy import Decision, EngineError, Policy, Request, TrainedPolicy
    from .replaying import Parting, Replay, ReplayError, replay
    from .rollout import Episode, Limits, live, rollout_episodes, seeds_of
    from .scripted import ScriptedPolicy
    from .transformers import TransformersPolicy
    from .vllm.options import VLLMOptions
    from .vllm.parity import ParityError
    from .vllm.policy import VLLMPolicy

__all__ = [
    "Branch",
    "Decision",
    "EngineError",
    "Episode",
    "HumanPolicy",
    "Limits",
    "LoadedModel",
    "ModelError",
    "OpenAIPolicy",
    "ParityError",
    "Parting",
    "Policy",
    "Replay",
    "ReplayError",
    "Request",
    "ScriptedPolicy",
    "TrainedPolicy",
    "TransformersPolicy",
    "VLLMOptions",
    "VLLMPolicy",
    "fork_pairs",
    "live",
    "live_branches",
    "load_model",
    "load_tokenizer",
    "replay",
    "rollout_episodes",
    "save_model",
    "seeds_of",
]

_HOMES = {
    "branch": ("Branch", "fork_pairs", "live_branches"),
    "human": ("HumanPolicy",),
    "models": ("LoadedModel", "ModelError", "load_model", "load_tokenizer", "save_model"),
    "openai": ("OpenAIPolicy",),
    "policy": ("Decision", "EngineError", "Policy", "Request", "TrainedPolicy"),
    "replaying": ("Parting", "Replay", "ReplayError", "replay"),
    "rollout": ("Episode", "Limits", "live", "rollout_episodes", "seeds_of"),
    "scripted": ("ScriptedPolicy",),
    "transformers": ("TransformersPolicy",),
    "vllm.options": ("VLLMOptions",),
    "vllm.parity": ("ParityError",),
    "vllm.policy": ("VLLMPolicy",),
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
