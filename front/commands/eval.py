"""`accredit eval`: held-out success of a model, with a 95 % interval."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .named import ENV_HELP

__all__ = ["command"]


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="base, smollm2, a folder, or the directory of a run.")],
    env: Annotated[str, typer.Argument(metavar="ENV", help=ENV_HELP)],
    episodes: Annotated[int, typer.Option(help="Held-out tasks, one episode each.", min=1)] = 200,
    level: Annotated[str | None, typer.Option(help="Difficulty level.", show_default="the environment's own")] = None,
    temperature: Annotated[float, typer.Option(help="Of the sampling; 0 is greedy.", min=0)] = 1.0,
    decision_tokens: Annotated[int, typer.Option(help="Most tokens a turn.", min=1)] = 64,
    episode_tokens: Annotated[int, typer.Option(help="Most tokens an episode.", min=16)] = 1024,
    engine: Annotated[str, typer.Option(help="What samples: transformers, or vllm.")] = "transformers",
    server: Annotated[
        str | None,
        typer.Option(help="Address of an OpenAI-compatible server that samples; MODEL then names the tokenizer."),
    ] = None,
    served: Annotated[str | None, typer.Option(help="The model's name there.", show_default="its first")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Evaluate a model on the held-out tasks, the same ones that training evaluates on."""
    from accredit.trainer.checkpoint import latest
    from accredit.trainer.config import SFTConfig, load_config
    from accredit.trainer.setup import held_out, make_engine, prepare

    found = latest(Path(model) / "checkpoints")
    options: dict[str, Any] = {"level": level} if level else {}
    config = load_config(
        SFTConfig,
        None,
        [
            f"env={json.dumps(env)}",
            f"env_options={json.dumps(options)}",
            f"model.path={json.dumps(str(found or model))}",
            f"rollout.decision_tokens={decision_tokens}",
            f"rollout.episode_tokens={episode_tokens}",
            f"rollout.engine={json.dumps(engine)}",
        ],
    )
    bench = prepare(config, weights=server is None)
    if server is None:
        policy = make_engine(config, bench.loaded.model)
    else:
        from accredit.agents.openai import OpenAIPolicy

        policy = OpenAIPolicy(server, bench.loaded.renderer, served)
    try:
        evaluation, _ = held_out(bench, policy, config, episodes, temperature, "eval")
    finally:
        policy.close()
    if as_json:
        print(json.dumps({"model": str(found or model), "env": env, **options, **evaluation._asdict()}))
    else:
        print(f"{found or model} on {env}{f' ({level})' if level else ''}: {evaluation.line()}")
