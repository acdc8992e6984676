"""`accredit convert`: stored episodes to and from the files of verifiers and OpenEnv."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from accredit.replay.convert import Texts

__all__ = ["command"]


def command(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A run, or a file of verifiers or OpenEnv.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write, or with a file as SOURCE the new run.")],
    to: Annotated[
        str | None,
        typer.Option(help="verifiers or openenv: what to write from a run.", show_default="a run of Accredit"),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="Folder or tokenizer.json that gives the text of each id read.", show_default="no token text"
        ),
    ] = None,
    step: Annotated[int | None, typer.Option(help="Of a run, this step only.", show_default="all")] = None,
    split: Annotated[
        Literal["train", "heldout"] | None, typer.Option(help="Of a run, train or heldout only.", show_default="both")
    ] = None,
    where: Annotated[str, typer.Option(help="Of a run, what fits, such as 'reward>0'.", show_default="all")] = "",
) -> None:
    """Convert the episodes of a run to verifiers' traces or OpenEnv's training traces, or make a run of such a file.

    Ids, masks, log-probabilities and advantages are kept; what is lost or assumed is printed. Nothing is overwritten.
    """
    from accredit.replay import open_run
    from accredit.replay.convert import FORMATS, read_foreign, write_foreign, write_run

    if to is not None:
        if to not in FORMATS:
            raise typer.BadParameter(f"expected {' or '.join(FORMATS)}, found '{to}'", param_hint="--to")
        reader = open_run(source)
        chosen = reader.episodes(step=step, split=split, where=where)
        notes = write_foreign(chosen, out, to, source.resolve().name)
        print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")
    else:
        if step is not None or split is not None or where:
            raise typer.BadParameter("--step, --split and --where choose from a run: give --to as well")
        conversion = read_foreign(source, None if tokenizer is None else _texts(tokenizer))
        write_run(conversion, out)
        notes = conversion.notes
        print(f"wrote {len(conversion.episodes)} episodes to {out}")
    for note, count in notes.items():
        if count:
            print(f"note: {note} ({count})")


def _texts(path: Path) -> "Texts":
    from tokenizers import Tokenizer

    from accredit.envs.tokentext import TokenText

    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise typer.BadParameter(f"there is no {file}: expected a tokenizer.json", param_hint="--tokenizer")
    return TokenText(Tokenizer.from_file(str(file))).token_bytes
