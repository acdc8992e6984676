"""`accredit counterfactual`: a stored episode again with one turn deleted, replaced or decided anew.

It replays the environment under the episode's own luck, prices the stored group with the changed member in it, and
prints what became of the turn's credit and of what the environment answered. It changes nothing on disk.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from accredit.table import print_table

if TYPE_CHECKING:
    from accredit.agents.models import LoadedModel
    from accredit.credit import Credit, Trajectory
    from accredit.credit.traces import StoredEpisode, TraceReader
    from accredit.envs import ToolEnv
    from accredit.trainer.config import TrainConfig

__all__ = ["command"]

_LONGEST_TEXT = 400


class _Scene(NamedTuple):
    """What the episode was lived in."""

    stored: "StoredEpisode"
    config: "TrainConfig"
    loaded: "LoadedModel"
    make_env: "Callable[[], ToolEnv]"
    checkpoint: Path | None
    options: dict[str, Any]


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run.")],
    episode: Annotated[str, typer.Option(help="Id of a stored episode (see `accredit replay show RUN`).")],
    turn: Annotated[int, typer.Option(help="The turn to change, counted from 0.", min=0)],
    delete: Annotated[bool, typer.Option("--delete", help="Leave the turn out and feed the later ones.")] = False,
    replace: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Say TEXT in the turn and feed the later ones.", show_default="sample the turn anew"
        ),
    ] = None,
    step: Annotated[int | None, typer.Option(help="Training step.", show_default="of the id, the latest")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Sampler seed of a turn decided anew.", min=0, show_default="the episode's own")
    ] = None,
) -> None:
    """Change one turn of a stored episode, replay the environment, and show how the credit of that turn moved.

    Without --delete and --replace the newest checkpoint of the run samples the turn anew and goes on from there, with
    the noise that the episode had in every other turn.
    """
    from accredit.agents.replaying import replay
    from accredit.credit.traces import open_run

    if delete and replace is not None:
        raise typer.BadParameter("expected one of --delete and --replace, found both", param_hint="--delete")
    if seed is not None and (delete or replace is not None):
        raise typer.BadParameter("nothing is sampled with --delete or --replace", param_hint="--seed")
    reader = open_run(run)
    stored = reader.episode(episode, step)
    base = stored.trajectory
    if not base.turns:
        why = f": {base.error}" if base.error else ""
        raise typer.BadParameter(f"episode {episode} has no turn to change, it ended before its first one{why}",
                                 param_hint="--episode")  # fmt: skip
    if turn >= base.turns:
        raise typer.BadParameter(f"episode {episode} has {base.turns} turns, expected at most {base.turns - 1}, "
                                 f"found {turn}", param_hint="--turn")  # fmt: skip
    scene = _scene(run, stored)
    exact = replay(base, scene.make_env, scene.loaded.renderer, options=scene.options)
    if exact.parting is None:
        print(f"replay of {episode}: exact, {base.turns} turns to the byte")
    else:
        print(f"replay of {episode}: NOT exact, it {exact.parting.line()}")
        print("what changed below may be the environment's own doing")
    if delete or replace is not None:
        changed = _fed(scene, turn, replace)
    else:
        changed = _decided_anew(scene, turn, seed)
    if changed.error is not None and changed.outcome is None:
        print(f"the changed episode is unscored: {changed.error}")
    _report(reader, scene, turn, changed, deleted=delete)


def _scene(run: Path, stored: "StoredEpisode") -> _Scene:
    from functools import partial

    from accredit.agents.models import load_model
    from accredit.envs import load_env
    from accredit.trainer.checkpoint import latest
    from accredit.trainer.config import TrainConfig
    from accredit.trainer.config_file import load_config

    folder = run if (run / "config.yaml").exists() else run.parent
    config = load_config(TrainConfig, folder / "config.yaml")
    checkpoint = latest(folder / "checkpoints")
    model = config.model
    path = model.path if checkpoint is None else str(checkpoint)
    loaded = load_model(path, dtype=model.dtype, device=model.device, tools_format=model.tools_format)
    options = {**config.env_options, "split": stored.split}
    return _Scene(stored, config, loaded, partial(load_env, config.env), checkpoint, options)


def _fed(scene: _Scene, turn: int, text: str | None) -> "Trajectory":
    """Feed the stored decisions, the one of `turn` left out or replaced by `text`."""
    import numpy as np

    from accredit.agents.replaying import decisions_of, replay
    from accredit.envs import Decision

    decisions = decisions_of(scene.stored.trajectory)
    said = [] if text is None else [Decision(np.array(scene.loaded.renderer.encode(text), dtype=np.int32))]
    decisions[turn : turn + 1] = said
    again = replay(
        scene.stored.trajectory, scene.make_env, scene.loaded.renderer, options=scene.options, decisions=decisions
    )
    fed = f"{len(decisions) - turn - len(said)} later turns fed as stored"
    print(f"turn {turn} {'deleted' if text is None else 'replaced'}, {fed}")
    return again.trajectory


def _decided_anew(scene: _Scene, turn: int, seed: int | None) -> "Trajectory":
    """Let the newest checkpoint decide `turn` anew and go on."""
    from accredit.agents.branch import Branch, live_branches
    from accredit.agents.rollout import Episode, Limits, seeds_of
    from accredit.agents.transformers import TransformersPolicy

    if scene.checkpoint is None:
        raise typer.BadParameter("the run keeps no checkpoint to sample from: give --delete or --replace TEXT")
    base, rollout = scene.stored.trajectory, scene.config.rollout
    sampler = base.seeds.get("sampler", 0)
    episode = Episode(
        f"{base.episode_id}-fork", base.group, base.seeds["environment"], base.seeds.get("luck", 0), sampler,
        base.options if base.options is not None else scene.options,
    )  # fmt: skip
    was = base.seeds.get("fork_sampler", sampler) if base.seeds.get("fork_turn") == turn else sampler
    branch = Branch(episode, base, turn, seeds_of(was, 2) if seed is None else seed)  # not what decided it before
    version = int(scene.checkpoint.name.removeprefix("step-"))
    limits = Limits(rollout.decision_tokens, rollout.episode_tokens, rollout.turns, None, rollout.seconds)
    heldout = scene.stored.split == "heldout"
    (changed,) = live_branches(
        [branch],
        TransformersPolicy(scene.loaded.model, version),
        scene.make_env,
        scene.loaded.renderer,
        limits,
        temperature=scene.config.evaluation.temperature if heldout else 1.0,
    )
    print(f"turn {turn} decided anew by {scene.checkpoint.name} (the episode's was decided by version "
          f"{base.policy_versions[turn]}), sampler seed {branch.sampler}")  # fmt: skip
    return changed


def _report(reader: "TraceReader", scene: _Scene, turn: int, changed: "Trajectory", *, deleted: bool) -> None:
    from dataclasses import replace

    from accredit.credit import Group
    from accredit.credit.functions import credit_function
    from accredit.trainer.loop import charge_scale

    stored, base = scene.stored, scene.stored.trajectory
    rows = [r for r in reader.index() if (r.step, r.split, r.group) == (stored.step, stored.split, base.group)]
    members = [reader.load(row).trajectory for row in rows]
    place = [member.episode_id for member in members].index(base.episode_id)
    settings = scene.config.credit
    scale = charge_scale(scene.config, max(0, stored.step - 1))
    function = credit_function(settings.function, charge_scale=scale, **settings.options)
    before = function(Group(tuple(members)))[place]
    if settings.function == "counterfactual":
        pair = {**base.seeds, "pair": 0, "fork_turn": turn}  # the changed episode is compared with the stored one
        after = function(Group((replace(base, seeds=pair), replace(changed, seeds=pair))))[1]
    else:
        after = function(Group((*members[:place], changed, *members[place + 1 :])))[place]
    rewards = ["unscored" if t.reward is None else f"{t.reward:.4f}" for t in (base, changed)]
    difference = "" if base.reward is None or changed.reward is None else f" ({changed.reward - base.reward:+.4f})"
    print(f"reward: {rewards[0]} -> {rewards[1]}{difference}, {base.stop} -> {changed.stop}")
    partner = ", after: against the stored episode" if settings.function == "counterfactual" else ""
    print(f"credit by '{settings.function}' in the stored group of {len(members)}{partner}:")
    if len(members) == 1:
        print("  (a group of one has nothing to compare with: expect 0)")
    shift = int(deleted)
    cells = [
        [
            f"{at} <" if at == turn else str(at),
            _sum(base, before, at),
            "deleted" if deleted and at == turn else _sum(changed, after, at - shift * (at > turn)),
        ]
        for at in range(max(base.turns, changed.turns + shift))
    ]
    print_table(["turn", "credit before", "credit after"], cells)
    _differences(scene, turn, changed, shift)


def _sum(trajectory: "Trajectory", credit: "Credit", turn: int) -> str:
    """Return the credit of a turn's decision tokens, "-" where the episode did not get there."""
    spans = [span for span in trajectory.decisions if span.turn == turn]
    return f"{sum(float(credit.credit.total[s.start : s.end].sum()) for s in spans):+.4f}" if spans else "-"


def _differences(scene: _Scene, turn: int, changed: "Trajectory", shift: int) -> None:
    from accredit.agents.replaying import text_of_turn

    base, renderer = scene.stored.trajectory, scene.loaded.renderer
    said = [text_of_turn(base, turn, renderer, decided=True)]
    said.append("(nothing: deleted)" if shift else text_of_turn(changed, turn, renderer, decided=True))
    _both(f"turn {turn} said", *said)
    same = True
    for at in range(turn + shift, max(base.turns, changed.turns + shift)):
        texts = text_of_turn(base, at, renderer), text_of_turn(changed, at - shift, renderer)
        if texts[0] != texts[1]:
            same = False
            _both(f"feedback of turn {at}", *texts)
    if same:
        print("feedback: the same in every turn that was lived")


def _both(head: str, before: str, after: str) -> None:
    from accredit.replay.plain import printable

    print(head)
    for name, text in (("before", before), ("after", after)):
        half = _LONGEST_TEXT // 2
        left_out = len(text) - _LONGEST_TEXT
        cut = text if left_out <= 0 else f"{text[:half]} [{left_out} characters] {text[-half:]}"
        print(f"  {name + ':':8}{printable(cut).strip() or '(nothing)'}".replace("\n", "\n          "))
