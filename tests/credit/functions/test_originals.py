import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[3] / "benchmarks" / "original_advantages.py"


@pytest.fixture(scope="module")
def originals():
    spec = importlib.util.spec_from_file_location("original_advantages", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_without_verl_the_comparison_says_so(originals, monkeypatch, capsys):
    monkeypatch.setattr(originals, "find_spec", lambda name: None)
    assert originals.main([]) == 2
    assert "verl is not installed" in capsys.readouterr().out


@pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl is not installed; it is no requirement")
def test_advantages_are_those_of_verl(originals):
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert max(originals.differences(originals.random_group(rng), rng).values()) < originals.TOLERANCE
