"""The journal gives back what had ended, whole and to the bit, and nothing that was torn."""

from dataclasses import fields, replace

import numpy as np

from accredit.credit import StopReason, Trajectory
from accredit.trainer.journal import Journal


def same(one, other):
    for field in fields(Trajectory):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), field.name
        else:
            assert a == b, field.name


def test_what_had_ended_comes_back_to_the_bit_and_a_torn_line_does_not(tmp_path, sampled_trajectories):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for trajectory in sampled_trajectories:
        journal.add(trajectory)
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    found = Journal(path).ended(0)
    assert list(found) == [trajectory.episode_id for trajectory in sampled_trajectories[:-1]]
    for trajectory in sampled_trajectories[:-1]:
        same(trajectory, found[trajectory.episode_id])
    again = Journal(path)
    again.add(sampled_trajectories[-1])
    assert path.read_bytes() == whole


def test_only_episodes_of_the_version_that_is_asked_for_come_back(tmp_path, sampled_trajectories):
    journal = Journal(tmp_path / "journal.jsonl")
    later = [replace(t, episode_id="later", policy_versions=(3,) * t.turns) for t in sampled_trajectories[:1]]
    for trajectory in [*sampled_trajectories[:2], *later]:
        journal.add(trajectory)
    reopened = Journal(tmp_path / "journal.jsonl")
    assert list(reopened.ended(3)) == ["later"]
    assert len(reopened.ended(0)) == 2
    reopened.clear()
    assert not reopened.ended(3)
    assert not Journal(tmp_path / "journal.jsonl").ended(0)


def test_an_episode_that_a_machine_lost_is_worth_another_try(tmp_path, sampled_trajectories):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.add(replace(sampled_trajectories[0], stop=StopReason.INFRASTRUCTURE, outcome=None))
    assert not Journal(tmp_path / "journal.jsonl").ended(0)
