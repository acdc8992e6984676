"""The benchmark on Symbols, cut down: luck does not touch counterfactual learning, and what is sampled is trained."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield import_module("symbols_learning")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def setting(bench):
    return bench.Setting(turns=3, filler=1, groups=4, group_size=4, steps=5, lr=1e-2, width=16, layers=1, heldout=8)


def test_with_and_without_luck_counterfactual_learning_is_the_same_to_the_last_digit(bench, setting):
    calm, lucky = (bench.learn("counterfactual", sigma, 0, setting) for sigma in (0.0, 0.5))
    assert calm == lucky
    assert len(set(calm.success)) > 1
    assert bench.learn("grpo", 0.0, 0, setting) != bench.learn("grpo", 0.5, 0, setting)


def test_sampled_log_probabilities_are_those_that_training_computes(bench, setting):
    torch.manual_seed(0)
    model = bench.Transformer(setting)
    (group, *_) = bench.live_groups(model, "grpo", 0.5, setting, 0, 0)
    assert len(group) == 4
    for member in group.trajectories:
        ids = torch.tensor(member.token_ids, dtype=torch.long)[None]
        logits = model(ids[:, :-1])
        for span in member.decisions:
            for place, at in enumerate(range(span.start, span.end)):
                offered = bench.offered(logits[:, at - 1], place, setting)
                assert offered[0, ids[0, at]].item() == pytest.approx(float(member.logprobs[at]), abs=1e-5)  # float32


def test_a_branch_keeps_coins_and_symbols_and_changes_nothing_before_its_turn(bench, setting):
    torch.manual_seed(0)
    changed = 0
    for group in bench.live_groups(bench.Transformer(setting), "counterfactual", 0.5, setting, 0, 0):
        assert len(group) == 4
        for base, fork in zip(group.trajectories[::2], group.trajectories[1::2], strict=True):
            assert (base.seeds["pair"], base.seeds["fork_turn"]) == (fork.seeds["pair"], fork.seeds["fork_turn"])
            start = base.decisions[base.seeds["fork_turn"]].start
            assert np.array_equal(base.token_ids[:start], fork.token_ids[:start])
            assert np.array_equal(base.token_ids[~base.credit_mask], fork.token_ids[~fork.credit_mask])
            changed += not np.array_equal(base.token_ids, fork.token_ids)
    assert changed >= 4


def test_the_goal_is_reached_when_the_mean_of_the_last_steps_reaches_it(bench, setting):
    curve = bench.Curve([0.1] * 3 + [0.9] * 7, 0.9)
    assert bench.episodes_to_goal(curve, setting) == 8 * 4 * 4
    assert bench.episodes_to_goal(bench.Curve([0.1] * 9, 0.1), setting) == float("inf")


def test_the_table_has_a_row_for_each_function_and_sigma(bench, capsys):
    words = "--turns 2 --filler 1 --groups 2 --group-size 2 --steps 2 --width 16 --layers 1 --heldout 4 --seeds 1"
    assert bench.main(words.split()) == 0
    said = capsys.readouterr().out
    rows = [line for line in said.splitlines() if line.startswith(("| counterfactual", "| grpo"))]
    assert len(rows) == 4
    assert "the curves of counterfactual credit are the same to the last digit for every sigma" in said
