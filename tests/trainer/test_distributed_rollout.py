"""Episodes dealt to several processes, which are threads here: every group is lived once, and all learn of all."""

import threading
from dataclasses import dataclass, field

import pytest

from accredit.agents.crew import LocalCrew, Work
from accredit.agents.rollout import Episode, Limits
from accredit.agents.scripted import ScriptedPolicy
from accredit.envs import InfrastructureError, load_env
from accredit.trainer.distributed import Processes
from accredit.trainer.distributed_rollout import FirstCrew, SplitCrew

WORLD = 3


@dataclass
class Table:
    """Where threads lay down what processes would send."""

    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(WORLD, timeout=60))
    told: dict = field(default_factory=dict)


class Threads(Processes):
    def __init__(self, rank, table):
        super().__init__(rank, WORLD, sharded=True)
        self._table = table

    def gather(self, own):
        self._table.told[self.rank] = own
        self._table.barrier.wait()
        found = [self._table.told[rank] for rank in range(WORLD)]
        self._table.barrier.wait()
        return found

    def from_first(self, work):
        told = self.gather(work() if self.first else None)
        return told[0]


class Counted:
    """Counts who lived what."""

    version = 0

    def __init__(self, crew, lived):
        self._crew, self._lived = crew, lived

    def close(self):
        self._crew.close()

    def live(self, episodes, work, on_done=None, on_fault=None):
        self._lived.append([episode.group for episode in episodes])
        return self._crew.live(episodes, work, on_done, on_fault)

    def updated(self, version):
        return {"version": float(version)}


class Shards:
    def __init__(self):
        self.written = 0

    def write_to(self, whole):
        self.written += 1


def in_threads(act):
    table, found, errors = Table(), {}, []

    def run(rank):
        try:
            found[rank] = act(Threads(rank, table))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(WORLD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors, errors
    return [found[rank] for rank in range(WORLD)]


def episodes(groups):
    return [
        Episode(f"e{group}-{member}", f"e{group}", group, member, member, {"level": "easy", "split": "train"})
        for group in range(groups)
        for member in range(2)
    ]


@pytest.fixture
def crew(renderer):
    return LocalCrew(ScriptedPolicy(renderer), lambda: load_env("Shop-v0"), renderer, Limits())


@pytest.mark.parametrize("groups", [1, 2, 7])
@pytest.mark.parametrize("kind", [SplitCrew, FirstCrew])
def test_all_processes_get_all_episodes_in_order_and_each_is_lived_once(crew, groups, kind):
    asked, lived = episodes(groups), []
    heard = {rank: [] for rank in range(WORLD)}
    here = [t.token_ids.tolist() for t in crew.live(asked, Work())]

    def act(company):
        own = Counted(crew, lived)
        return kind(own, company, Shards(), None).live(
            asked, Work(), lambda t: heard[company.rank].append(t.episode_id)
        )

    for found in in_threads(act):
        assert [t.episode_id for t in found] == [episode.id for episode in asked]
        assert [t.token_ids.tolist() for t in found] == here
    assert sorted(group for part in lived for group in part) == sorted(episode.group for episode in asked)
    assert all(part.count(group) == 2 for part in lived for group in part)  # groups are dealt whole
    assert sorted(heard[0]) == sorted(episode.id for episode in asked)
    assert not heard[1] and not heard[2]


def test_what_had_ended_is_what_the_first_process_says(crew):
    asked, lived, heard = episodes(4), [], []
    done = crew.live(asked, Work())
    crew.policy.lockstep = False  # in lockstep it would be asked again for what had ended, which it reads from episodes
    known = {trajectory.episode_id: trajectory for trajectory in done[:3]}

    def act(company):
        work = Work(ended=known if company.first else {})
        return SplitCrew(Counted(crew, lived), company, Shards(), None).live(asked, work, heard.append)

    for found in in_threads(act):
        assert all(found[place] is done[place] for place in range(3))
    assert sorted(t.episode_id for t in heard) == sorted(episode.id for episode in asked[3:])


def test_faults_are_heard_by_all(renderer):
    def broken():
        raise InfrastructureError("no machine")

    asked = episodes(3)
    crew = LocalCrew(ScriptedPolicy(renderer), broken, renderer, Limits())

    def act(company):
        faults = []
        SplitCrew(crew, company, Shards(), None).live(asked, Work(), None, faults.append)
        return len(faults)

    assert in_threads(act) == [12, 12, 12]  # six episodes, lived twice


def test_weights_are_written_on_every_process_before_they_are_handed_over(crew):
    def act(company):
        shards = Shards()
        metrics = SplitCrew(Counted(crew, []), company, shards, None).updated(4)
        return shards.written, metrics

    assert in_threads(act) == [(1, {"version": 4.0})] * WORLD
