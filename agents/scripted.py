"""A policy that follows a script instead of a model: experts, fixed texts, tests.

Its log-probabilities are 0: a script is certain of what it says.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from accredit.envs import ToolEnv
from accredit.envs.rendering import Renderer

from .policy import Decision, Request

__all__ = ["ScriptedPolicy", "expert"]

Script = Callable[[ToolEnv], Iterator[str]]


def expert(env: ToolEnv) -> Iterator[str]:
    """Return the environment's own scripted expert."""
    return env.expert()


class ScriptedPolicy:
    """Plays `script(env)`, one message a turn. A script that ends early says nothing more, which ends the episode."""

    lockstep = True
    version = 0

    def __init__(self, renderer: Renderer, script: Script = expert) -> None:
        self._renderer = renderer
        self._script = script
        self._running: dict[str, Iterator[str]] = {}

    async def sample(self, requests: Sequence[Request]) -> list[Decision]:
        """Return the script's next message for each request, with a stop id at its end."""
        return [self._next(request) for request in requests]

    def forget(self, episode_id: str) -> None:
        """Drop the script of an episode that has ended."""
        self._running.pop(episode_id, None)

    def _next(self, request: Request) -> Decision:
        if request.env is None:
            raise ValueError("a scripted policy reads the environment: pass Request.env")
        script = self._running.get(request.episode_id)
        if script is None:
            script = self._running[request.episode_id] = self._script(request.env)
        ids = np.array(self._renderer.encode(next(script, "")), dtype=np.int32)
        return Decision(ids, np.zeros(len(ids), dtype=np.float32), 0)
