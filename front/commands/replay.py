"""`accredit replay`: stored trajectories as one HTML file, or in the terminal."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from accredit.table import print_table

__all__ = ["app"]

app = typer.Typer(help="Look at stored trajectories: who was paid for which token, and why.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run, or its traces folder.")]
Step = Annotated[int | None, typer.Option(help="Training step.", show_default="any; of one id, the latest")]
Split = Annotated[Literal["train", "heldout"] | None, typer.Option(help="train or heldout.", show_default="both")]
Where = Annotated[
    str, typer.Option(help="What fits, such as 'reward<0 error:timeout tool:python turns>8'.", show_default="all")
]
Credit = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[,NAME...]",
        help="Credit functions to show beside the stored credit, such as rloo,anchored,lam=0 (lam is an option).",
        show_default="none",
    ),
]


@app.command("export")
def export_command(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="File to write.", show_default="RUN/replay.html")] = None,
    episode: Annotated[
        list[str] | None, typer.Option(help="Id of an episode; may be given several times.", show_default="all")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Rollouts of this group only.", show_default="any")] = None,
    step: Step = None,
    split: Split = None,
    where: Where = "",
    top: Annotated[int | None, typer.Option(help="Keep the N highest rewards.", min=1, show_default="all")] = None,
    budget_mb: Annotated[float, typer.Option(help="Size of the file, in MB, at which to stop adding episodes.")] = 20.0,
    title: Annotated[str | None, typer.Option(help="Title of the page.", show_default="the run's name")] = None,
    credit: Credit = None,
) -> None:
    """Write chosen episodes as one self-contained HTML file, which opens anywhere and asks no server."""
    from accredit.replay import export

    written = export(
        run,
        out or run / "replay.html",
        episodes=episode or None,
        group=group,
        step=step,
        split=split,
        where=where,
        top=top,
        budget_mb=budget_mb,
        title=title,
        functions=_labels(credit),
    )
    print(f"wrote {written} ({written.stat().st_size / 1e6:.1f} MB)")


@app.command("view")
def view_command(
    run: Run,
    port: Annotated[int, typer.Option(help="Port of 127.0.0.1; 0 for one that is free.", min=0, max=65535)] = 7117,
    where: Where = "",
    credit: Credit = None,
) -> None:
    """Serve the page of a run on this machine, also while it trains, until Ctrl-C.

    The page then shows new episodes and metrics as they come. From another machine: ssh -L PORT:localhost:PORT.
    """
    from accredit.replay.html_file import title_of
    from accredit.replay.serve import serve

    folder = _traces_of(run)

    def started(url: str) -> None:
        print(f"{run} at {url} (Ctrl-C ends it)", flush=True)

    serve(folder, title=title_of(folder), port=port, functions=_labels(credit), where=where, started=started)


@app.command("show")
def show_command(
    run: Run,
    episode: Annotated[
        str | None, typer.Argument(metavar="EPISODE", help="Id of an episode.", show_default="list them")
    ] = None,
    step: Step = None,
    split: Split = None,
    where: Where = "",
    last: Annotated[int, typer.Option(help="Of the list, the last N; 0 for all.", min=0)] = 20,
    ledger: Annotated[
        int, typer.Option(help="Print the ledger of N tokens, from the first decision on; 0 for none.", min=0)
    ] = 0,
) -> None:
    """Print an episode in the terminal: credit as colour, masked text dim, charges with their reasons."""
    from accredit.replay import open_run, show
    from accredit.replay.plain import one_line

    reader = open_run(run)
    if episode is not None:
        show(reader.episode(episode, step), ledger=ledger)
        return
    rows = list(reader.select(step=step, split=split, where=where))
    shown = rows[-last:] if last else rows
    cells = [
        [
            one_line(row.episode_id),
            str(row.step),
            one_line(row.split),
            one_line(row.env_id),
            one_line(row.task_id),
            "unscored" if row.reward is None else f"{row.reward:.3f}",
            one_line(row.stop),
            str(row.turns),
            str(row.tokens),
            str(row.charges),
        ]
        for row in shown
    ]
    print_table(["episode", "step", "split", "env", "task", "reward", "stop", "turns", "tokens", "charges"], cells)
    if not rows:
        print(f"none of {len(reader.index())} episodes fits")
    if len(shown) < len(rows):
        print(f"{len(shown)} of {len(rows)} episodes; --last 0 lists all")


def _labels(credit: list[str] | None) -> list[str]:
    """Return the labels of `--credit`: a word with `=` is an option of the name before it (`rloo,anchored,lam=0`)."""
    labels: list[str] = []
    for word in (word.strip() for given in credit or [] for word in given.split(",")):
        if "=" in word and labels:
            labels[-1] += f",{word}"
        elif word:
            labels.append(word)
    return labels


def _traces_of(run: Path) -> Path:
    """Return the traces folder of a run, also of one that has written none yet."""
    from accredit.replay import open_run

    if (run / "config.yaml").is_file() and not (run / "traces" / "episodes.jsonl").exists():
        return run / "traces"
    return open_run(run).folder
