"""`accredit export`: a checkpoint of a run as a Hugging Face model."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")],
    step: Annotated[str, typer.Option(help="Which checkpoint: last, best (by held-out success), or a step.")] = "last",
    out: Annotated[Path | None, typer.Option(help="New folder to write.", show_default="none")] = None,
    push_to: Annotated[
        str | None, typer.Option(help="Model repository on the Hugging Face Hub, as OWNER/NAME.", show_default="none")
    ] = None,
    adapter: Annotated[
        bool, typer.Option("--adapter", help="Write the adapter alone, not added to its base's weights.")
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="Make a new repository public.")] = False,
) -> None:
    """Write a checkpoint as a Hugging Face model that `transformers` loads without Accredit, or push it to the Hub."""
    if out is None and push_to is None:
        raise typer.BadParameter("say where to: --out FOLDER, --push-to OWNER/NAME, or both")
    from accredit.trainer.export import export, hub_token, push

    token = hub_token() if push_to is not None else ""
    with tempfile.TemporaryDirectory() as spare:
        folder = out if out is not None else Path(spare) / "model"
        checkpoint = export(run, step, folder, adapter=adapter)
        if out is not None:
            print(f"{checkpoint.name} of {run} written to {out}")
        if push_to is not None:
            print(f"{checkpoint.name} of {run} pushed to {push(folder, push_to, token, private=not public)}")
