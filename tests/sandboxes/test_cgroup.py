"""Control groups of both versions over plain folders; the kernel's side is played by the test."""

import os
from pathlib import Path

import pytest

from accredit.sandboxes.embedded import cgroup

FILES = {
    "v1": {
        "tasks": "",
        "memory.limit_in_bytes": "",
        "memory.memsw.limit_in_bytes": "",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        "memory.max_usage_in_bytes": "3145728\n",
        "pids.max": "",
        "pids.events": "max 7\n",
    },
    "v2": {
        "cgroup.procs": "",
        "memory.max": "",
        "memory.swap.max": "",
        "memory.events": "low 0\noom 9\noom_kill 2\noom_group_kill 0\n",
        "memory.peak": "3145728\n",
        "pids.max": "",
        "pids.events": "max 7\n",
    },
}


@pytest.fixture(params=["v1", "v2"])
def version(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    version: str = request.param
    root = tmp_path / "tree"
    (root / "a" / "b").mkdir(parents=True)
    if version == "v1":
        mounts, own = {"memory": str(root / "a"), "pids": str(root)}, {"memory": "/", "pids": "/a/b"}
    else:
        mounts, own = {"": str(root)}, {"": "/a/b"}
        (root / "cgroup.subtree_control").write_text("cpu memory pids\n")
        (root / "a" / "cgroup.subtree_control").write_text("cpu memory pids\n")
        (root / "a" / "b" / "cgroup.subtree_control").write_text("\n")

    really_make = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        really_make(path, mode)
        for name, text in FILES[version].items():
            (Path(path) / name).write_text(text)

    monkeypatch.setattr(cgroup, "_mounts", lambda: mounts)
    monkeypatch.setattr(cgroup, "_own_groups", lambda: own)
    monkeypatch.setattr(cgroup.os, "mkdir", mkdir)
    return version


def test_limits_and_counters_reach_the_right_files(version: str) -> None:
    group = cgroup.create(memory_mb=128, pids=20)
    written = {name: "".join((Path(d) / name).read_text() for d in group.directories) for name in FILES[version]}
    size = str(128 << 20)
    if version == "v1":
        assert written["memory.limit_in_bytes"] == written["memory.memsw.limit_in_bytes"] == size
    else:
        assert (written["memory.max"], written["memory.swap.max"]) == (size, "0")
    assert written["pids.max"] == "20"
    assert (group.oom_kills(), group.pids_refused(), group.peak_mb()) == (2, 7, 3.0)
    group.join()
    join = {"v1": "tasks", "v2": "cgroup.procs"}[version]
    assert all((Path(d) / join).read_text() == "0" for d in group.directories)


def test_version_2_goes_up_to_the_first_group_that_hands_memory_on(version: str) -> None:
    if version == "v2":
        (directory,) = cgroup.create(128, 20).directories
        assert Path(directory).parent.name == "a"


def test_no_controller_is_an_error_with_the_reason_per_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_mounts", dict)
    with pytest.raises(OSError, match="v1: no memory controller is mounted; v2: not mounted"):
        cgroup.create(128, 20)


def test_groups_of_slots_that_were_killed_are_swept(version: str, tmp_path: Path) -> None:
    first = cgroup.create(128, 20)
    made = Path(first.directories[0])
    processes = made.name.rsplit("-", 2)[0]
    stale, ours = (made.with_name(f"{processes}-{pid}-0badf00d") for pid in (999999999, os.getpid()))
    foreign, living = made.with_name("accredit-1-999999999-0badf00d"), made.with_name(f"{processes}-1-0badf00d")
    for directory in (stale, ours, foreign, living):
        directory.mkdir()
    for directory in (stale, ours, *map(Path, first.directories)):  # the kernel's files are no obstacle to rmdir
        for file in directory.iterdir():
            file.unlink()
    first.remove()
    cgroup.create(128, 20)
    assert not stale.exists() and not ours.exists()
    assert foreign.exists() and living.exists()


def test_a_group_of_the_same_process_id_that_cannot_be_removed_is_no_obstacle(version: str) -> None:
    first, second = cgroup.create(128, 20), cgroup.create(128, 20)
    assert all(map(os.path.isdir, first.directories)), "the folders hold files, as a group may hold a process"
    assert len(second.directories) == len(first.directories)
    assert set(first.directories).isdisjoint(second.directories)
