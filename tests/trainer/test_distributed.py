"""Several processes: two of them, over gloo on the CPU, do what one does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from accredit.agents.vllm.options import VLLMOptions, engine_environment
from accredit.trainer.batch import rows_of, weigh
from accredit.trainer.config import ConfigError, TrainConfig
from accredit.trainer.distributed import Processes
from accredit.trainer.distributed_rows import deal, packed_tokens, weightless
from accredit.trainer.learner import _of_process

HERE = Path(__file__).parent


def weighed(trajectories):
    return weigh(rows_of(trajectories, [t.credit_mask.astype(np.float64) for t in trajectories]), "token_mean")


@pytest.mark.parametrize("world", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("most", [300, 16_384])
def test_every_row_is_dealt_once_and_all_make_as_many_passes(sampled_trajectories, world, most):
    rows = weighed(sampled_trajectories)
    dealt = [deal(rows, most, rank, world) for rank in range(world)]
    assert len({len(parts) for parts in dealt}) == 1
    found = [row for parts in dealt for part in parts for row in part or ()]
    assert sorted(map(id, found)) == sorted(map(id, rows))
    assert sum(float(row.weight_N.sum()) for row in found) == pytest.approx(1, abs=1e-5)
    assert all(sum(packed_tokens(part)) <= most or len(part) == 1 for parts in dealt for part in parts if part)
    assert all(part for parts in dealt for part in parts[:-1])  # only the last pass may find a process without rows


def test_nobody_waits_while_rows_fit_into_one_pass_each(sampled_trajectories):
    rows = weighed(sampled_trajectories)
    assert [len(deal(rows, 16_384, rank, 2)) for rank in range(2)] == [1, 1]
    assert all(deal(rows, 16_384, rank, 2)[0] for rank in range(2))


def test_an_idle_process_computes_a_row_of_no_weight(sampled_trajectories):
    (row,) = weightless(weighed(sampled_trajectories))
    assert row.targets_N.tolist() == [len(row.token_ids_T) - 1]
    assert not row.weight_N.any() and not row.kl_weight_N.any() and not row.advantages_N.any()


@pytest.mark.parametrize("count", [0, 1, 5, 6])
def test_what_is_dealt_comes_together_in_order(count):
    items = list(range(count))
    shares = [Processes(rank, 3).share(items) for rank in range(3)]
    assert Processes(0, 3).together(shares) == items


SERVERS = tuple(f"http://there:{port}" for port in range(5))


def on_servers(*servers):
    return TrainConfig.model_validate({"env": "Shop-v0", "rollout": {"engine": "vllm", "vllm": {"servers": servers}}})


def test_servers_are_dealt_to_the_processes():
    dealt = [_of_process(on_servers(*SERVERS), Processes(rank, 2), "cpu").rollout.vllm.servers for rank in range(2)]
    assert sorted(server for servers in dealt for server in servers) == sorted(SERVERS)
    assert all(dealt)
    with pytest.raises(ConfigError, match="1 servers for 2 processes"):
        _of_process(on_servers(SERVERS[0]), Processes(0, 2), "cpu")
    with pytest.raises(ConfigError, match=r"name them in rollout\.vllm\.servers"):
        _of_process(on_servers(), Processes(0, 2), "cpu")


def test_an_engine_does_not_take_itself_for_a_process_of_the_run(monkeypatch):
    told = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with engine_environment(VLLMOptions(), on_gpu=True):
        assert not set(told) & set(os.environ)
    assert {name: os.environ[name] for name in told} == told


def torchrun(*words, timeout_s=280, **environment):
    """Run two processes; return what came out. The port is free: it was bound a moment ago."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    return subprocess.run(
        [*command, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    where = tmp_path_factory.mktemp("two") / "facts.json"
    done = torchrun(HERE / "two_processes.py", where)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(where.read_text())


SAME = ("optimizer/steps", "optimizer/grad_norm", "loss/policy", "loss/kl", "policy/clip_share", "train/row_tokens")


@pytest.mark.parametrize("case", ["whole", "many", "idle"])
def test_two_processes_make_the_update_of_one(facts, case):
    found = facts[case]
    for name in SAME:
        assert found["together"][name] == pytest.approx(found["alone"][name], rel=1e-4, abs=1e-6), name
    assert found["gradient"] < 1e-4  # float32 sums in another order, relative to the largest of a tensor
    assert found["moved"] > 0.005
    assert found["weights"] < 0.02 * found["moved"]  # AdamW divides gradients near 0 by their own size
    assert 0.4 < found["share"] < 0.6
    alone, together = found["signals"]
    for values_T, expected_T in zip(together, alone, strict=True):
        assert values_T == pytest.approx(expected_T, abs=1e-4)  # float32; 9 stands for NaN
    assert any(value != 9 for values_T in together for value in values_T)


def test_shards_of_sixteen_bit_models_are_stepped_in_float32(facts):
    found = facts["sixteen"]
    assert found["together"]["optimizer/grad_norm"] == pytest.approx(found["alone"]["optimizer/grad_norm"], rel=0.03)
    assert found["masters"] == 0


@pytest.mark.parametrize("case", ["whole", "many", "sixteen"])
def test_optimizer_state_passes_between_one_process_and_shards_to_the_bit(facts, case):
    assert facts[case]["resumed"] == 0
    assert facts[case]["reshared"] == 0
