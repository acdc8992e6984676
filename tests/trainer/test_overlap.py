"""Rollouts ahead: with which weights they are lived, that they repeat to the same bits and end with the run."""

import json
import re
import threading
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

import accredit.trainer.loop as loop
from accredit.agents.crew import LocalCrew, Work
from accredit.agents.lora import LoRA, add
from accredit.agents.models import load_model
from accredit.agents.rollout import Limits
from accredit.agents.transformers import TransformersPolicy
from accredit.credit import StopReason
from accredit.credit.traces import open_run
from accredit.envs import load_env
from accredit.trainer.batch import collate, rows_of
from accredit.trainer.config import ConfigError, TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.distributed import Processes
from accredit.trainer.estimate import memory_estimate
from accredit.trainer.logprobs import score
from accredit.trainer.loop import train
from accredit.trainer.overlap import Lived, OverlappedCrew, StaleError, frozen_copy, staleness
from accredit.trainer.rollouts import AHEAD, read_ahead, write_ahead

from .conftest import shop_episodes, small_run, weights_of

STEPS = 5


class Heard:
    def __init__(self, fail_at=None):
        self.steps, self.fail_at = [], fail_at

    def started(self, run, config, first_step): ...
    def lived(self, done, of): ...
    def evaluated(self, step, evaluation): ...

    def stepped(self, step, metrics):
        self.steps.append(metrics)
        if step == self.fail_at:
            raise KeyboardInterrupt


@pytest.fixture
def configured(tmp_path, tiny_folder):
    ahead = {"steps": STEPS, "loss.importance": "token", "evaluation.every": 2, "save.every": 2}

    def make(name, staleness, **more):
        more = {**ahead, "rollout.max_staleness": staleness, **more}
        return small_run(tmp_path, tiny_folder, name=name, **more)

    return make


def versions_of(run):
    """The policy versions of the turns of each step's episodes, and of the evaluations."""
    found = {}
    reader = open_run(run.path)
    for row in reader.index():
        versions = reader.episode(row.episode_id).trajectory.policy_versions
        found.setdefault((row.split, row.episode_id[:7]), set()).update(versions)
    return found


def lines_of(run):
    names = ("time/", "ema/")
    return [{k: v for k, v in line.items() if not k.startswith(names)} for line in run.history()]


@pytest.mark.parametrize("k", [1, 2])
def test_every_step_learns_from_episodes_of_exactly_k_versions_before(configured, k):
    heard = Heard()
    run = train(configured("a", k), heard).run
    found = versions_of(run)
    for step in range(STEPS):
        assert found["train", f"s{step:06d}"] == {max(0, step - k)}
    for step in (0, 2, 4, 5):
        assert found["heldout", f"e{step:06d}"] == {step}  # what is evaluated is never stale
    assert [m["rollout/staleness_max"] for m in heard.steps] == [min(step, k) for step in range(STEPS)]
    assert [m["rollout/staleness_mean"] for m in heard.steps] == [min(step, k) for step in range(STEPS)]
    assert ["policy/importance_mean" in m for m in heard.steps] == [False] + [True] * (STEPS - 1)


def test_the_weights_that_lived_a_step_are_those_of_its_version(configured, tmp_path):
    """Checkpoints of every step score what was lived: right with the weights of one version, wrong with the next."""
    run = train(configured("a", 1, **{"save.every": 1, "save.keep": 9}), Heard()).run
    stored = open_run(run.path)
    lived = [
        stored.episode(row.episode_id).trajectory for row in stored.index() if row.episode_id.startswith("s000003")
    ]
    batch = collate(rows_of(lived, [t.credit_mask.astype(float) for t in lived]))
    gaps = {}
    for version in (1, 2, 3):
        model = load_model(str(run.checkpoints / f"step-{version:06d}"), device="cpu").model
        with torch.no_grad():
            gaps[version] = float((score(model, batch).logprobs_N - batch.logprobs_N).abs().max())
    assert gaps[2] < 1e-4  # float32
    assert gaps[1] > 0.01 and gaps[3] > 0.01


def test_an_adapter_reaches_the_copy_that_lives_ahead(model, renderer):
    adapted = model
    add(adapted, LoRA(4, 8.0), Path("base"))
    sampler = frozen_copy(adapted)
    own = LocalCrew(TransformersPolicy(sampler), lambda: load_env("Shop-v0"), renderer, Limits(12, 1200))
    crew = OverlappedCrew(own, sampler, adapted)
    with torch.no_grad():
        for weight in adapted.parameters():
            weight.add_(weight.requires_grad * torch.ones_like(weight))
    crew.updated(1)
    crew.submit(lambda _: None).result(timeout=60)
    crew.close()
    pairs = list(zip(adapted.parameters(), sampler.parameters(), strict=True))
    assert all(torch.equal(source, target) for source, target in pairs)
    assert any(source.requires_grad for source, _ in pairs) and not any(target.requires_grad for _, target in pairs)


def test_the_memory_estimate_counts_the_copies(configured):
    now, ahead = (memory_estimate(configured("a", k)) for k in (0, 2))
    assert "ahead" not in now
    found = re.search(r"weights that live episodes ahead, and those that wait: ([\d,]+) MB", ahead)
    assert found


def test_one_step_behind_repeats_to_the_same_bits_and_is_another_run_than_on_policy(configured):
    one, two, now = (train(configured(name, k), Heard()).run for name, k in (("a", 1), ("b", 1), ("c", 0)))
    assert lines_of(one) == lines_of(two)
    assert all(torch.equal(a, b) for a, b in zip(weights_of(one).values(), weights_of(two).values(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(weights_of(one).values(), weights_of(now).values(), strict=True))
    assert lines_of(one)[1]["rollout/reward"] == lines_of(now)[1]["rollout/reward"]  # the first step is the same


@pytest.mark.parametrize(("k", "stop"), [(1, 1), (1, 2), (1, 3), (2, 4)])
def test_a_run_that_was_stopped_and_resumed_ends_with_the_bits_of_one_left_alone(configured, k, stop):
    """Before the first checkpoint, right before the second is written, and between two."""
    whole = train(configured("whole", k), Heard()).run
    with pytest.raises(KeyboardInterrupt):
        train(configured("cut", k), Heard(fail_at=stop))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("accredit-rollout")]
    resumed = train(configured("cut", k), Heard(), resume=True).run
    assert all(torch.equal(a, b) for a, b in zip(weights_of(whole).values(), weights_of(resumed).values(), strict=True))
    assert lines_of(whole) == lines_of(resumed)
    assert versions_of(whole) == versions_of(resumed)


def test_a_checkpoint_keeps_what_was_lived_ahead(configured, tmp_path):
    run = train(configured("a", 2, **{"save.keep": 9}), Heard()).run
    ahead = run.checkpoints / "step-000002"
    facts = json.loads((ahead / "state.json").read_text())
    assert facts["ahead"] == {"2": [8, 0], "3": [8, 0]}
    found = read_ahead(ahead, facts["ahead"])
    stored = open_run(run.path)
    for lived in chain(*(lot.trajectories for lot in found.values())):
        np.testing.assert_array_equal(lived.token_ids, stored.episode(lived.episode_id).trajectory.token_ids)
    lost = [replace(t, stop=StopReason.INFRASTRUCTURE, outcome=None) for t in found[3].trajectories]
    write_ahead({3: Lived(lost, 24, 1.0)}, tmp_path)
    again = read_ahead(tmp_path, {"3": (8, 24)})
    assert again[3].faults == 24 and all(t.stop is StopReason.INFRASTRUCTURE for t in again[3].trajectories)
    assert not (run.checkpoints / "step-000005" / AHEAD).exists()


def test_what_is_not_all_there_is_lived_again_with_newer_weights_and_said(configured, caplog):
    with pytest.raises(KeyboardInterrupt):
        train(configured("a", 1), Heard(fail_at=3))
    lines = configured("a", 1)
    path = next((Path(lines.runs_dir) / "a" / "checkpoints").glob("step-000002")) / AHEAD
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    heard = Heard()
    train(lines, heard, resume=True)
    assert "step 3 is lived again, with newer weights" in caplog.text
    assert [m["rollout/staleness_max"] for m in heard.steps] == [0, 1, 1]


def test_weights_that_change_meanwhile_do_not_reach_what_is_being_lived(model, renderer):
    limits, episodes = Limits(12, 1200, turns=2), shop_episodes(4)

    def crew_for(weights):
        return LocalCrew(TransformersPolicy(weights), lambda: load_env("Shop-v0"), renderer, limits)

    before = crew_for(frozen_copy(model)).live(episodes, Work())
    sampler = frozen_copy(model)
    crew, changed = OverlappedCrew(crew_for(sampler), sampler, model), threading.Event()

    def held(own):
        assert changed.wait(60)
        return own.live(episodes, Work())

    try:
        first = crew.submit(held)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.5)
        crew.updated(1)
        second = crew.submit(held)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(0.1)
        changed.set()
        lived, later = first.result(timeout=120), second.result(timeout=120)
    finally:
        changed.set()
        crew.close()
    for one, other in zip(before, lived, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        np.testing.assert_array_equal(one.logprobs, other.logprobs)
    with torch.no_grad():
        for weight in model.parameters():
            weight.div_(0.1)
    expected = crew_for(model).live(episodes, Work())
    for one, other in zip(expected, later, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
    assert {version for t in later for version in t.policy_versions} == {1}
    assert any(len(a) != len(b) or (a.token_ids != b.token_ids).any() for a, b in zip(before, later, strict=True))


def test_an_episode_older_than_the_bound_never_teaches(sampled_trajectories):
    assert staleness(sampled_trajectories, 1, 1)["rollout/staleness_max"] == 1
    with pytest.raises(StaleError, match="by version 0 of the policy and would teach version 5, expected at most 4"):
        staleness(sampled_trajectories, 5, 4)


def test_an_engine_that_fails_ahead_ends_the_run_with_its_message(configured, monkeypatch):
    real = TransformersPolicy._sample

    def failing(self, requests):
        if self.version == 2:
            raise RuntimeError("the engine is gone")
        return real(self, requests)

    monkeypatch.setattr(TransformersPolicy, "_sample", failing)
    heard = Heard()
    with pytest.raises(RuntimeError, match="the engine is gone"):
        train(configured("a", 1, **{"evaluation.every": 0}), heard)
    assert len(heard.steps) == 3  # steps 1 to 3 were lived before by versions 0, 0 and 1


@pytest.mark.parametrize(("lr", "fires"), [(0.03, True), (1e-4, False)])
def test_steps_too_large_for_their_staleness_raise_the_alarm(configured, lr, fires):
    heard = Heard()
    more = {"steps": 8, "optimizer.lr": lr, "evaluation.every": 0, "evaluation.episodes": 1, "save.every": 8}
    train(configured("a", 2, **more), heard)
    assert any("too_stale" in m.get("alarms", {}) for m in heard.steps) == fires
    assert not any("sampler_apart" in m.get("alarms", {}) for m in heard.steps)


def test_a_cap_that_truncates_nothing_can_be_written_down_and_resumed(configured):
    config = configured("a", 1, steps=2)
    free = config.model_copy(update={"loss": config.loss.model_copy(update={"importance_cap": float("inf")})})
    with pytest.raises(KeyboardInterrupt):
        train(free, Heard(fail_at=1))
    assert train(load_config(TrainConfig, Path(free.runs_dir) / "a" / "config.yaml"), Heard(), resume=True)


def test_several_processes_do_not_live_ahead(configured, monkeypatch):
    from contextlib import nullcontext

    monkeypatch.setattr(loop, "processes_of", lambda _: nullcontext(Processes(0, 2, sharded=True)))
    with pytest.raises(ConfigError, match="max_staleness is 1, expected 0 under torchrun"):
        train(configured("a", 1), Heard())
