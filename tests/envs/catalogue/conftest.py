"""How the catalogue's tests play an episode."""

from collections.abc import Callable, Iterable

import pytest

from accredit.envs import ToolEnv

Play = Callable[[ToolEnv, Iterable[str]], tuple[float, int]]


@pytest.fixture(scope="session")
def play() -> Play:
    """Step an environment through messages until the episode ends; return its reward and number of turns."""

    def run(env: ToolEnv, messages: Iterable[str]) -> tuple[float, int]:
        for message in messages:
            _, reward, terminated, truncated, _ = env.step(message)
            if terminated or truncated:
                return reward, env.turn
        raise AssertionError(f"the messages ran out in turn {env.turn}, before the episode ended")

    return run
