"""What trackers were told: every step once, after a resume too."""

import json
import struct
import time
from pathlib import Path

import pytest

from accredit.trainer.metrics import MetricsWriter, cut_after, read_metrics
from accredit.trainer.trackers import Trackers


def write(folder: Path, trackers: Trackers, steps):
    writer = MetricsWriter(folder, trackers)
    for step in steps:
        writer.write(step, {"rollout/reward": step / 10, "note": "not a number"})
        writer.write(step, {"eval/success": step / 20})
    writer.close()


def resumed(folder: Path, names=()):
    """Write steps 1 to 5 in one process, then 4 to 6 in one that goes on after step 3."""
    write(folder, Trackers(folder, names, {"name": "run"}), range(1, 6))
    cut_after(folder / "metrics.jsonl", 3)
    write(folder, Trackers(folder, names, {"name": "run"}, 3), range(4, 7))


def test_tensorboard_and_the_metrics_hold_every_step_once_after_a_resume(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    resumed(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "rollout/reward" in line] == [1, 2, 3, 4, 5, 6]
    assert lines == read_metrics(tmp_path / "metrics.jsonl")
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    for name in ("rollout/reward", "eval/success"):
        assert [event.step for event in board.Scalars(name)] == [1, 2, 3, 4, 5, 6]


def test_a_torn_line_goes_with_the_steps_after_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1}\n{"step": 2, "a": 2}\n{"step": 3, "a')
    cut_after(path, 1)
    assert path.read_text() == '{"step": 1, "a": 1}\n'


def test_weights_and_biases_is_sent_no_line_twice(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    resumed(tmp_path, ["wandb"])
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2
    assert len({path.name for path in files}) == 1  # one run, whichever process wrote
    deadline = time.monotonic() + 60  # its own process still writes when `finish` returns
    while len(found := rewards_in(files)) < 6 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert found == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def rewards_in(files):
    from wandb.proto import wandb_internal_pb2  # pyright: ignore[reportMissingImports]

    rewards: list[float] = []
    for path in files:
        for data in records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            items = record.history.item if record.HasField("history") else ()
            rewards += [json.loads(i.value_json) for i in items if "rollout/reward" in (i.key, *i.nested_key)]
    return rewards


def records(data: bytes):
    """Yield the records of a .wandb file: a header of 7 bytes, then LevelDB's log of blocks of 32 kB."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # full, last
            yield whole
            whole = b""


def test_trackio_is_sent_no_line_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="pip install trackio")
    from trackio.sqlite_storage import SQLiteStorage  # pyright: ignore[reportMissingImports]

    resumed(tmp_path, ["trackio"])
    (name,) = SQLiteStorage.get_runs("accredit")
    logs = SQLiteStorage.get_logs("accredit", name)
    assert [log["rollout/reward"] for log in logs if "rollout/reward" in log] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
