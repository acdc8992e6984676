import shutil
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import accredit.envs  # noqa: F401  (the catalogue must be registered before the registry is noted)

EXAMPLE = Path(__file__).parents[2] / "examples" / "prices.py"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The smallest example's file in the current folder, and a registry in which nobody else took its name."""
    monkeypatch.chdir(tmp_path)
    before = dict(gymnasium.registry)
    gymnasium.registry.pop("accredit/Prices-v0", None)
    yield Path(shutil.copy(EXAMPLE, tmp_path))
    gymnasium.registry.clear()
    gymnasium.registry.update(before)
