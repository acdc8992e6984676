"""Real training runs under which machines fail: what is lost is unscored and charged to nobody, and the run goes on."""

import importlib.util
import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accredit.agents.models import LoadedModel, save_model
from accredit.agents.scripted import ScriptedPolicy, expert
from accredit.credit import CallStatus, Group, StopReason
from accredit.credit.functions import credit_function
from accredit.envs import tinytokenizers
from accredit.sandboxes import SandboxError
from accredit.sandboxes.select import NAME_VARIABLE, select
from accredit.trainer import loop, rollouts, setup
from accredit.trainer.config import TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.metrics import read_metrics
from accredit.trainer.run import RunError

KILLING = """
import os, signal, threading
from accredit.envs import tool
from accredit.envs.catalogue.python_math import PythonMath

class Killing(PythonMath):
    seen = set()

    @tool(timeout_s=30.0)
    def python(self, code: str) -> str:
        "Run Python code, see what it prints."
        luck = self.options["luck"]
        if luck % 4 == 0 or (luck % 4 == 1 and luck not in self.seen):
            self.seen.add(luck)
            session = self.interpreter._opened()
            threading.Timer(0.3, os.kill, (session.pid, signal.SIGKILL)).start()
            code = "import time\\ntime.sleep(4)\\n" + code
        return super().python(code)
"""


def _play(env):
    """Let everybody run code, and every third answer 0."""
    said = expert(env)
    yield next(said)
    yield "0" if env.options["luck"] % 3 == 0 else next(said)


class Played(ScriptedPolicy):
    """Groups have a spread, and log-probabilities are even, as those of the untrained model nearly are."""

    def __init__(self, renderer) -> None:
        super().__init__(renderer, _play)
        self._even = -np.log(renderer.vocab_size)

    def updated(self, version: int) -> dict[str, float]:
        self.version = version
        return {}

    def close(self) -> None:
        pass

    async def sample(self, requests):
        said = await super().sample(requests)
        even = [np.full(len(np.asarray(d.ids)), self._even, np.float32) for d in said]
        return [replace(d, logprobs=p, policy_version=self.version) for d, p in zip(said, even, strict=True)]


class Hears:
    """Remembers each step's metrics; `after` acts when a step is done."""

    def __init__(self, after=lambda step: None, lived=lambda done: None) -> None:
        self.metrics, self._after, self._lived = [], after, lived

    def started(self, run, config, first_step) -> None:
        pass

    def lived(self, done, of) -> None:
        self._lived(done)

    def stepped(self, step, metrics) -> None:
        self.metrics.append(metrics)
        self._after(step)

    def evaluated(self, step, evaluation) -> None:
        pass


@pytest.fixture(scope="module", autouse=True)
def _a_sandbox() -> None:
    try:
        select("embedded")
    except SandboxError as error:
        if os.environ.get("REQUIRE_SANDBOX") == "1":
            raise
        pytest.skip(f"no sandbox on this machine: {error}")


@pytest.fixture(scope="module")
def far():
    """The real server and the proxy that loses answers, of the tests of remote sandboxes."""
    path = Path(__file__).parents[1] / "sandboxes" / "remote" / "conftest.py"
    spec = importlib.util.spec_from_file_location("accredit_tests_of_remote", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def runs(tmp_path, renderer, make_tiny_llama, monkeypatch):
    """Train for some steps of 2 groups of 4 and return (metrics, every trajectory, every group with its credits)."""
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path / "tiny"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tinytokenizers.byte_level())
    save_model(LoadedModel(make_tiny_llama(), tokenizer, renderer), folder)
    monkeypatch.setattr(setup, "make_engine", lambda config, model: Played(renderer))
    monkeypatch.setattr(rollouts, "OUTAGE_S", (0.1,))
    kept, real = [], loop.step_metrics

    def keeping(trajectories, credits, groups):
        kept.append((trajectories, credits, groups))
        return real(trajectories, credits, groups)

    monkeypatch.setattr(loop, "step_metrics", keeping)

    def run(hears=None, env="PythonMath-v0", steps=2, **more):
        overrides = {
            "name": "a",
            "runs_dir": str(tmp_path),
            "env": env,
            "env_options": {"level": "easy"},
            "model.path": str(folder),
            "steps": steps,
            "rollout.groups": 2,
            "rollout.group_size": 4,
            "rollout.episode_tokens": 4000,
            "credit.function": "grpo",
            "evaluation.episodes": 1,
            "evaluation.every": 0,
            **more,
        }
        config = load_config(TrainConfig, None, [f"{key}={json.dumps(value)}" for key, value in overrides.items()])
        hears = hears or Hears()
        result = loop.train(config, hears)
        written = [line for line in read_metrics(result.run.path / "metrics.jsonl") if "rollout/reward" in line]
        assert len(written) == len(hears.metrics) == steps
        return written, kept

    return run


def check_nobody_paid(kept) -> tuple[int, int]:
    """Check what a lost episode may do; return the numbers of lost and of scored episodes."""
    lost = scored = 0
    for trajectories, credits, groups in kept:
        for trajectory, credit in zip(trajectories, credits, strict=True):
            failed = [call for call in trajectory.calls if call.status is CallStatus.INFRASTRUCTURE]
            assert bool(failed) <= (trajectory.stop is StopReason.INFRASTRUCTURE)
            if trajectory.stop is StopReason.INFRASTRUCTURE:
                lost += 1
                assert trajectory.outcome is None and trajectory.reward is None
                assert not trajectory.charges
                assert not credit.advantage.total.any()
            else:
                scored += 1
                assert trajectory.outcome in (0.0, 1.0)
                assert not trajectory.charges
        for group in groups:
            left = [t for t in group.trajectories if t.reward is not None]
            alone = iter(credit_function("grpo")(Group(tuple(left)))) if left else iter(())
            for trajectory, credit in zip(group.trajectories, credit_function("grpo")(group), strict=True):
                if trajectory.reward is not None:  # the baseline is that of the scored members only
                    np.testing.assert_array_equal(credit.advantage.total, next(alone).advantage.total)
    return lost, scored


def test_a_slot_killed_in_an_episode_costs_nobody_and_the_run_goes_on(runs, tmp_path) -> None:
    (tmp_path / "killing.py").write_text(KILLING)
    metrics, kept = runs(env=f"{tmp_path / 'killing.py'}:Killing", steps=3)
    lost, scored = check_nobody_paid(kept)
    assert lost and scored and lost + scored == 24
    killed = round(sum(line["rollout/infrastructure_rate"] * 8 for line in metrics))
    assert killed > 0
    for line, (trajectories, _, _) in zip(metrics, kept, strict=True):
        unscored = sum(t.reward is None for t in trajectories)
        assert line["rollout/unscored_share"] == unscored / 8
        assert (line["rollout/infrastructure_rate"] > 0) >= (unscored > 0)
        assert line["ema/rollout/infrastructure_rate"] is not None
        assert line["rollout/charges"] == 0
    again = [t for trajectories, _, _ in kept for t in trajectories if t.seeds["luck"] % 4 == 1]
    assert again and all(t.reward is not None for t in again)  # killed once, lived again, scored


def test_lost_answers_of_a_pool_change_nothing_but_the_time(runs, far, monkeypatch) -> None:
    monkeypatch.setenv(NAME_VARIABLE, "embedded")
    _, calm = runs(name="calm")
    calm = list(calm)
    server = far.Server({}, {})
    proxy = far.Proxy(server.port)
    proxy.about, proxy.lose = b"program", 3  # one may be hit by all: the fourth try gets through
    monkeypatch.setenv(NAME_VARIABLE, proxy.url)
    try:
        metrics, kept = runs(name="lossy")
        assert (proxy.lost, server.health()["repeated"]) == (3, 3)
    finally:
        proxy.close()
        server.end(signal.SIGKILL)
    assert [line["rollout/infrastructure_rate"] for line in metrics] == [0.0, 0.0]
    assert check_nobody_paid(kept)[0] == 0
    for (before, _, _), (after, _, _) in zip(calm, kept[len(calm) :], strict=True):
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one.token_ids, other.token_ids)
            assert one.reward == other.reward


def test_an_overloaded_pool_leaves_episodes_unscored(runs, far, monkeypatch) -> None:
    server = far.Server({"most": 1, "queue": 0}, {})
    monkeypatch.setenv(NAME_VARIABLE, server.url)
    monkeypatch.setattr("accredit.sandboxes.remote.client._PAUSES_S", ())
    monkeypatch.setattr(rollouts, "OUTAGE_S", (0.1,) * 20)
    try:
        metrics, kept = runs()
        assert server.health()["statuses"]["overloaded"] > 0
    finally:
        server.end(signal.SIGKILL)
    lost, scored = check_nobody_paid(kept)
    assert lost and scored
    assert all(line["rollout/infrastructure_rate"] > 0 for line in metrics)
    assert "overloaded" in next(t.calls[-1].result for ts, _, _ in kept for t in ts if t.reward is None)


def test_a_pool_that_goes_away_and_comes_back_stops_no_run(runs, far, monkeypatch) -> None:
    servers = [far.Server({}, {})]
    monkeypatch.setenv(NAME_VARIABLE, servers[0].url)
    monkeypatch.setattr(rollouts, "OUTAGE_S", (0.5,) * 100)

    def after(step: int) -> None:
        if step == 1:
            servers[0].end(signal.SIGKILL)
            threading.Timer(3.0, lambda: servers.append(far.Server({}, {"port": servers[0].port}))).start()

    try:
        metrics, kept = runs(Hears(after), steps=3)
    finally:
        for server in servers:
            server.end(signal.SIGKILL)
    rates = [line["rollout/infrastructure_rate"] for line in metrics]
    assert rates[0] == rates[2] == 0 < rates[1]
    check_nobody_paid(kept)


def test_a_pool_that_stays_away_ends_the_run_and_says_why(runs, far, monkeypatch) -> None:
    server = far.Server({}, {})
    monkeypatch.setenv(NAME_VARIABLE, server.url)
    hears = Hears(lambda step: server.end(signal.SIGKILL))
    with pytest.raises(RunError, match=r"all 8 episodes of the step ended unscored; .*cannot be reached"):
        runs(hears)
    assert len(hears.metrics) == 1
