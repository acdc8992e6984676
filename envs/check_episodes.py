"""Checks of episodes: seeds, isolation, randomness, state keys and forks."""

import dataclasses
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .core import ToolEnv
from .state import fingerprint
from .subject import Broken, Skipped, Subject, Transcript, first_difference, go_on, play

__all__ = ["EPISODE_CHECKS", "digest"]

THREADS = 4
FORK_BORDERS = 4
PROCESS_TIMEOUT_S = 120


def digest(subject: Subject) -> str:
    """Return a hash of the transcripts of every opening: what another process must get too."""
    transcripts = [
        play(subject.make(), subject.script(seed, options), seed, options) for seed, options in subject.openings()
    ]
    return fingerprint(repr([transcript.events for transcript in transcripts]))


def seeds_fix_everything(subject: Subject) -> str:
    """Check that the same seed gives the same episode in fresh, used and concurrent instances."""
    compared = 0
    for seed, options in subject.openings():
        script = subject.script(seed, options)
        expected = play(subject.make(), script, seed, options)
        used = subject.make()
        play(used, subject.script(seed + 1, options), seed + 1, options)
        _same(
            expected,
            play(used, script, seed, options),
            f"seed {seed} {options}: a used instance differs from a fresh one",
        )
        with ThreadPoolExecutor(THREADS) as pool:
            runs = [pool.submit(play, subject.make(), script, seed, options) for _ in range(THREADS)]
        for run in runs:
            _same(expected, run.result(), f"seed {seed} {options}: instances in {THREADS} threads differ")
        compared += 1
    return f"{compared} episodes are the same in a used instance and in {THREADS} threads at once"


def seeds_hold_across_processes(subject: Subject) -> str:
    """Check that the same seed gives the same episode in another process with another hash seed."""
    if subject.reference is None:
        raise Skipped("another process cannot find the class: give it by name, or as file.py:Class")
    here = digest(subject)
    code = "import sys; from accredit.envs.check import digest_of; print(digest_of(*sys.argv[1:]))"
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    done = subprocess.run(
        [sys.executable, "-c", code, subject.reference, repr(dict(subject.settings)), *map(str, subject.seeds)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PROCESS_TIMEOUT_S,
        check=False,
    )
    if done.returncode and "cannot import" in done.stderr:
        raise Skipped(f"another process cannot import {subject.reference}: name the environment as file.py:Class")
    if done.returncode:
        raise Broken(f"another process failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    there = done.stdout.strip().splitlines()[-1]
    if here != there:
        raise Broken(
            "another process (PYTHONHASHSEED=4242) got other episodes from the same seeds: sort sets before use"
        )
    return f"another process got the same episodes (digest {here[:8]})"


def episodes_are_isolated(subject: Subject) -> str:
    """Check that what happens to one instance or its state is never seen by another or by the next episode."""
    count = 0
    for seed, options in subject.openings():
        script = subject.script(seed, options)
        expected = play(subject.make(), script, seed, options)
        one, other = subject.make(), subject.make()
        start = [one.reset(seed=seed, options=options), one.state_key()]
        begun = [other.reset(seed=seed, options=options), other.state_key()]
        go_on(one, script)
        _same(expected, go_on(other, script, begun), f"seed {seed}: an episode changed another one")
        spoil(one.state)
        again = [one.reset(seed=seed, options=options), one.state_key()]
        if again != start:
            raise Broken(
                f"seed {seed}: after its state was changed in place, it starts differently: copy data into state"
            )
        fresh = subject.make()
        if [fresh.reset(seed=seed, options=options), fresh.state_key()] != start:
            raise Broken(f"seed {seed}: after one instance's state was changed in place, others start differently")
        count += 1
    return f"{count} interleaved episodes, and starts after the old state was spoiled, are unchanged"


def global_randomness_is_untouched(subject: Subject) -> str:
    """Check that the environment neither changes nor reads the process's global random states."""
    kept = random.getstate(), np.random.get_state()
    try:
        for seed, options in subject.openings():
            script = subject.script(seed, options)
            found: list[Transcript] = []
            for global_seed in (1, 2):
                random.seed(global_seed)
                np.random.seed(global_seed)
                before = _global_state()
                found.append(play(subject.make(), script, seed, options))
                if _global_state() != before:
                    raise Broken(f"seed {seed}: an episode changed the global random state: draw from self.rng alone")
            _same(
                found[0],
                found[1],
                f"seed {seed}: the episode depends on the global random state: draw from self.rng alone",
            )
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
    return "random and numpy.random are neither read nor changed"


def forks_equal_originals(subject: Subject) -> str:
    """Check that a fork at any turn border goes on as the original does, and neither changes the other."""
    forks = 0
    for seed, options in subject.openings():
        script = subject.script(seed, options)
        env = subject.make()
        env.reset(seed=seed, options=options)
        last = len(script) - 1
        borders = {round(last * part / (FORK_BORDERS - 1)) for part in range(FORK_BORDERS)}
        for at, message in enumerate(script):
            if env.stop is not None:
                break
            if at not in borders:
                env.step(message)
                continue
            key = env.state_key()
            twins = env.fork(), env.fork()
            ahead = go_on(twins[0], script[at:])
            where = f"seed {seed} {options}, turn {at}"
            if env.state_key() != key:
                raise Broken(f"{where}: playing a fork changed the original's state")
            _same(ahead, go_on(twins[1], script[at:]), f"{where}: two forks differ")
            if at == 0:
                _same(ahead, _rest(subject, seed, options, script), f"{where}: a fork differs from its original")
            lucky = env.fork(7), env.fork(7)
            _same(go_on(lucky[0], script[at:]), go_on(lucky[1], script[at:]), f"{where}: forks with one seed differ")
            forks += 4
            own = go_on(env, [message])
            if tuple(own.events) != ahead.events[: len(own.events)]:
                raise Broken(f"{where}: the original went on differently from its fork")
    return f"{forks} forks at turn borders went on as their originals"


def state_keys_are_pure(subject: Subject) -> str:
    """Check that `state_key` exists where there is state, and asking for it changes nothing."""
    for seed, options in subject.openings():
        env, asked = subject.make(), subject.make()
        env.reset(seed=seed, options=options)
        asked.reset(seed=seed, options=options)
        if env.state is not None and env.state_key() is None:
            raise Broken("state_key() is None though there is state: return a key of all that future reward depends on")
        if asked.state_key() != asked.state_key() or not isinstance(asked.state_key(), (str, type(None))):
            raise Broken(f"state_key() gave {asked.state_key()!r:.60} and then something else, expected one text")
        script = subject.script(seed, options)
        _same(go_on(env, script), go_on(asked, script), f"seed {seed}: asking for the state's key changed the episode")
    return "keys are texts, repeat, and leave the episode as it is"


def spoil(state: Any, depth: int = 6) -> None:
    """Change a state in place, as a careless tool would: empty its containers, overwrite its fields."""
    if depth < 0:
        return
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        values = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    elif hasattr(state, "__dict__"):
        values = dict(vars(state))
    else:
        values = {}
    children: Sequence[Any] = [*values.values()]
    if isinstance(state, Mapping):
        children = list(state.values())
    elif isinstance(state, (list, tuple)):
        children = list(state)
    for child in children:
        if not isinstance(child, (str, bytes, int, float, ToolEnv, type(None))):
            spoil(child, depth - 1)
    if isinstance(state, (dict, list, set, bytearray)):
        state.clear()


def _rest(subject: Subject, seed: int, options: Mapping[str, Any], script: Sequence[str]) -> Transcript:
    env = subject.make()
    env.reset(seed=seed, options=options)
    return go_on(env, script)


def _same(expected: Transcript, found: Transcript, what: str) -> None:
    difference = first_difference(expected, found)
    if difference:
        raise Broken(f"{what}: {difference}")


def _global_state() -> tuple[Any, str]:
    return random.getstate(), repr(np.random.get_state())


EPISODE_CHECKS: dict[str, Callable[[Subject], str]] = {
    "seeds": seeds_fix_everything,
    "processes": seeds_hold_across_processes,
    "isolation": episodes_are_isolated,
    "global randomness": global_randomness_is_untouched,
    "state key": state_keys_are_pure,
    "fork": forks_equal_originals,
}
