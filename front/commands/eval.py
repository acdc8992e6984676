"""`accredit eval`: held-out success of a model on one or more environments, with 95 % intervals over tasks."""

import json
import re
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accredit.envs import load_env
from accredit.progress import EpisodeBar
from accredit.table import print_table

from .named import ENV_HELP

if TYPE_CHECKING:
    from accredit.trainer.suite import Result

__all__ = ["command"]


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="base, smollm2, a folder, or the directory of a run.")],
    envs: Annotated[list[str], typer.Argument(metavar="ENV...", help=ENV_HELP)],
    episodes: Annotated[int, typer.Option(help="Held-out tasks of each environment.", min=1)] = 200,
    samples: Annotated[int, typer.Option(help="Episodes a task; more than 1 gives pass@k.", min=1)] = 1,
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
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results, tables and episodes; goes on there if killed.", show_default="none"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Evaluate a model on held-out tasks, the same ones that training evaluates on."""
    from accredit.trainer.checkpoint import latest
    from accredit.trainer.config import SFTConfig
    from accredit.trainer.config_file import load_config
    from accredit.trainer.run import RunDirectory, told_of_disk
    from accredit.trainer.setup import check_tasks, make_engine, prepare
    from accredit.trainer.suite import cells, evaluate_on, open_suite, to_json, to_markdown
    from accredit.trainer.whole_file import replace_file

    found = latest(Path(model) / "checkpoints")
    options: dict[str, Any] = {"level": level} if level else {}
    configs = [
        load_config(
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
        for env in dict.fromkeys(envs)
    ]
    for config in configs[1:]:
        check_tasks(partial(load_env, config.env), config.env, options)
    settings = {
        **{"model": str(found or model), "envs": envs, **options, "episodes": episodes, "samples": samples},
        **{"temperature": temperature, "decision_tokens": decision_tokens, "episode_tokens": episode_tokens},
        **{"engine": engine, "server": server, "served": served},
    }
    run = None if out is None else RunDirectory(out, "eval")
    with told_of_disk(run) if run is not None else nullcontext():
        if run is not None:
            run.path.mkdir(parents=True, exist_ok=True)
            run.lock()
            open_suite(run.path, settings)
        bench = prepare(configs[0], weights=server is None)
        if server is None:
            policy = make_engine(configs[0], bench.loaded.model)
        else:
            from accredit.agents.openai import OpenAIPolicy

            policy = OpenAIPolicy(server, bench.loaded.renderer, served)
        results: list[Result] = []
        try:
            for config in configs:
                on_env = bench._replace(make_env=partial(load_env, config.env))
                folder = None if run is None else run.path / _folder_name(config.env)
                with EpisodeBar(config.env, episodes * samples) as bar:
                    results.append(
                        evaluate_on(on_env, policy, config, episodes, samples, temperature, folder, bar.lived)
                    )
        except KeyboardInterrupt:
            if run is not None:
                print(f"interrupted; the same command goes on with {run.path}", file=sys.stderr)
            raise
        finally:
            policy.close()
        told = [{"model": settings["model"], **to_json(result)} for result in results]
        if run is not None:
            replace_file(run.path / "evaluation.json", json.dumps(told, indent=1) + "\n")
            replace_file(run.path / "evaluation.md", to_markdown(settings["model"], results))
    if as_json:
        print(json.dumps(told[0] if len(told) == 1 else told))
    elif len(results) == 1:
        print(f"{found or model} on {envs[0]}{f' ({level})' if level else ''}: {results[0].line()}")
    else:
        ks = sorted(results[0].pass_at)
        head = ["environment", "tasks", "samples", *(f"pass@{k}" for k in ks), "unscored", "turns", "charges"]
        print_table(head, [cells(result, ks) for result in results])


def _folder_name(env: str) -> str:
    return re.sub(r"[^\w.-]+", "_", env).strip("_")
