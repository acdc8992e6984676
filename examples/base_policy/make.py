"""Make the base policy that ships with the package: tokenizer, weights, log and evaluation. Seeded.

    python examples/base_policy/make.py --out agents/base

It imitates scripted traces of the catalogue's environments and of random schemas (`schemas.py`). The clerk it learns
the shop from is sloppy: his calls are valid and his values copied right, but he lets each rule go now and then, or
forgets to send the order. So the policy knows the forms, and what reinforcement learning has to teach it are the rules.
Tasks of the held-out split are never seen.
"""

import argparse
import copy
import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from schemas import NOUNS, VERBS, Conversation, conversation
from slips import with_slips
from transformers import LlamaConfig, LlamaForCausalLM
from vocabulary import train_tokenizer

from accredit.agents.models import LoadedModel, load_model, save_model
from accredit.agents.rollout import Episode, Limits, live, seeds_of
from accredit.agents.scripted import ScriptedPolicy, expert
from accredit.agents.transformers import TransformersPolicy
from accredit.credit import Recorder, SpanKind, StopReason, Trajectory
from accredit.envs import ToolEnv, load_env
from accredit.envs.catalogue.words import ITEMS, NAMES, WORDS
from accredit.envs.chatml import ChatMLRenderer
from accredit.envs.rendering import Renderer
from accredit.trainer.batch import Row, rows_of
from accredit.trainer.evaluation import summarise
from accredit.trainer.sft import imitate

Sources = tuple[tuple[str, dict[str, Any], int], ...]
"""Environment, options and number of traces, for each."""

SOURCES: dict[str, Sources] = {
    "base": (
        ("Shop-v0", {"level": "easy"}, 2500),
        ("Arithmetic-v0", {}, 800),
        ("PythonMath-v0", {}, 400),
    ),
    "shop-medium": (("Shop-v0", {"level": "medium"}, 2500), ("Shop-v0", {"level": "easy"}, 800)),
    "python": (("Python-v0", {"level": "easy"}, 1200), ("PythonMath-v0", {}, 200)),
}
"""What `--learn` names. All but "base" go on from a policy that has learnt that."""

SCHEMAS = 9000


def main() -> None:
    """Run the whole recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("agents/base"), help="folder of the policy")
    parser.add_argument("--log", type=Path, default=Path("examples/base_policy/log.jsonl"), help="where to log")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=900, help="optimizer steps")
    parser.add_argument("--batch", type=int, default=48, help="sequences a step")
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--error-rate", type=float, default=0.5, help="how often the clerk lets a rule go")
    parser.add_argument("--vocab", type=int, default=1024, help="size of the vocabulary")
    parser.add_argument("--width", type=int, default=128, help="hidden size")
    parser.add_argument("--layers", type=int, default=4, help="layers")
    parser.add_argument("--repair-steps", type=int, default=500, help="steps of the second stage")
    parser.add_argument(
        "--slip-rate", type=float, default=0.15, help="failed calls a turn in the second stage's traces"
    )
    parser.add_argument(
        "--learn-failures", action="store_true", help="imitate failing calls, too, so that the policy makes them"
    )
    parser.add_argument("--start", type=Path, help="begin with the second stage, from this folder's first stage")
    parser.add_argument("--learn", choices=list(SOURCES), default="base", help="what to imitate; see SOURCES")
    parser.add_argument("--save-every", type=int, default=250, help="steps between evaluations")
    args = parser.parse_args()
    if args.learn != "base" and args.start is None:
        parser.error(f"--learn {args.learn} goes on from a policy: name its folder, --start agents/base")
    sources = SOURCES[args.learn]

    torch.manual_seed(args.seed)
    started = time.monotonic()
    log = args.log.open("w", encoding="utf-8")

    def note(**facts: Any) -> None:
        line = json.dumps({"seconds": round(time.monotonic() - started, 1), **facts})
        print(line, flush=True)
        log.write(line + "\n")
        log.flush()

    note(arguments={name: value for name, value in vars(args).items() if not isinstance(value, Path)})
    if args.start is None:
        _first_stage(sources, args, note)
    loaded = load_model(str(args.start or args.out))  # half precision in between, whichever way it is run
    _second_stage(loaded, sources, args, note)
    log.close()


def _first_stage(sources: Sources, args: argparse.Namespace, note: Callable[..., None]) -> None:
    """Learn to copy from schemas and the trades from clean traces."""
    tokenizer = train_tokenizer(_texts(args.seed), args.vocab)
    renderer = ChatMLRenderer(tokenizer, tools_format="signature")
    lived = _trajectories(renderer, sources, args, note, 0.0)
    schemas = [_record(conversation(seeds_of(args.seed, 6, index)), renderer) for index in range(SCHEMAS)]
    pools = [_rows(lived), _rows(schemas)]
    note(vocabulary=len(tokenizer), rows=[len(pool) for pool in pools], tokens=[_mean_length(pool) for pool in pools])
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=args.width,
            intermediate_size=3 * args.width,
            num_hidden_layers=args.layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=4096,
            initializer_range=0.08,  # with the usual 0.02 a model this narrow takes far longer to learn to copy
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    note(parameters=sum(weight.numel() for weight in model.parameters()))
    loaded = LoadedModel(model, tokenizer, renderer)
    shares = [args.batch // 4 if step < args.steps // 3 else args.batch * 2 // 3 for step in range(args.steps)]
    _imitate(loaded, sources, pools, shares, args, args.lr, note)  # copying first, then the trades


def _second_stage(loaded: LoadedModel, sources: Sources, args: argparse.Namespace, note: Callable[..., None]) -> None:
    """Learn to go on after a failed call: the failed call is read, and only what follows it is learnt."""
    note(stage="repair")
    lived = _trajectories(loaded.renderer, sources, args, note, args.slip_rate)
    schemas = [_record(conversation(seeds_of(args.seed, 11, index)), loaded.renderer) for index in range(SCHEMAS // 4)]
    shares = [args.batch * 2 // 3] * args.repair_steps
    pools = [_rows(lived, args.learn_failures), _rows(schemas)]
    _imitate(loaded, sources, pools, shares, args, 0.75 * args.lr, note)


def _imitate(
    loaded: LoadedModel,
    sources: Sources,
    pools: list[list[Row]],
    shares: list[int],
    args: argparse.Namespace,
    lr: float,
    note: Callable[..., None],
) -> None:
    """Make one step for each of `shares`, the number of the batch's rows that come from the first pool, and save."""
    optimizer = torch.optim.AdamW(loaded.model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    for step, lived in enumerate(shares):
        draw = random.Random(seeds_of(args.seed, 7, step))
        rows = [*draw.sample(pools[0], lived), *draw.sample(pools[1], args.batch - lived)]
        rate = lr * min(1.0, (step + 1) / 50) * (1 - 0.95 * step / len(shares))
        facts = imitate(loaded.model, optimizer, rows, rate, 1.0, 16_384)
        done = step + 1
        if done % 20 == 0:
            note(step=done, nll_nats=round(facts["loss/nll_nats"], 4), lr=round(rate, 6))
        if done % args.save_every == 0 or done == len(shares):
            _save(loaded, args.out)
            note(step=done, heldout=_evaluate(loaded, sources, 100 if done < len(shares) else 400))


def _texts(seed: int) -> Iterator[str]:
    """Yield the words that the tokenizer should know: conversations, prompts and the texts of the environments."""
    for _ in range(300):
        yield " ".join([*WORDS, *ITEMS, *NAMES, *VERBS, *NOUNS])
    for index in range(4000):
        sample = conversation(seeds_of(seed, 8, index))
        yield "\n".join(message.content for message in sample.messages)
        yield "\n".join(f"{tool.name} {tool.description} {json.dumps(dict(tool.parameters))}" for tool in sample.tools)
        for said, answers in sample.turns:
            yield said
            yield from (answer.content for answer in answers)
    for name, options, count in SOURCES["base"]:
        env = load_env(name)
        for index in range(count // 20):
            messages, _ = env.reset(seed=seeds_of(seed, 9, index), options={**options, "split": "train"})
            yield "\n".join(message.content for message in messages)
            yield "\n".join(
                f"{tool.name}({', '.join(tool.parameters['properties'])}): {tool.description}" for tool in env.schemas
            )
            for said in env.expert():
                yield said
                new, _, ended, cut, _ = env.step(said)
                yield from (message.content for message in new)
                if ended or cut:
                    break
        env.close()


def _trajectories(
    renderer: Renderer, sources: Sources, args: argparse.Namespace, note: Callable[..., None], slip_rate: float
) -> list[Trajectory]:
    """Play every source; with a `slip_rate`, the player makes failing calls and repeats them right."""
    kept: list[Trajectory] = []
    for source, (name, options, count) in enumerate(sources):

        def script(env: ToolEnv) -> Iterator[str]:
            rng = np.random.default_rng(int(env.rng.integers(2**62)))
            sloppy = getattr(env, "sloppy", None)
            plan = expert(env) if sloppy is None else sloppy(rng, args.error_rate)
            return with_slips(plan, random.Random(int(rng.integers(2**62))), slip_rate)

        stage = 10 if slip_rate == 0 else 12
        seeds = [seeds_of(args.seed, stage, source, index) for index in range(count)]
        episodes = [Episode(f"{name}-{i}", "", s, s, s, {**options, "split": "train"}) for i, s in enumerate(seeds)]
        lived = live(
            episodes, ScriptedPolicy(renderer, script), partial(load_env, name), renderer, Limits(), at_once=32
        )
        clean = slip_rate == 0 and not args.learn_failures
        usable = [t for t in lived if t.reward is not None and not (clean and t.charges)]
        note(env=name, traces=len(usable), success=round(float(np.mean([t.reward or 0 for t in usable])), 3))
        kept += usable
    return kept


def _record(sample: Conversation, renderer: Renderer) -> Trajectory:
    write = {
        SpanKind.PROMPT: Recorder.prompt,
        SpanKind.FEEDBACK: Recorder.feedback,
        SpanKind.SCAFFOLD: Recorder.scaffold,
    }
    recorder = Recorder()
    for kind, ids in renderer.prompt(sample.messages, sample.tools):
        write[kind](recorder, ids)
    for said, answers in sample.turns:
        ids = renderer.encode(said)
        recorder.decision(ids, np.zeros(len(ids)))
        if answers:
            for kind, ids in renderer.feedback(answers, closed=True):
                write[kind](recorder, ids)
    return recorder.finish(None, StopReason.DONE)


def _rows(trajectories: list[Trajectory], failures: bool = False) -> list[Row]:
    """Make rows whose targets are the decisions, without `failures` only those of turns in which no call failed."""
    wanted = []
    for trajectory in trajectories:
        failed = {call.turn for call in trajectory.calls if not call.status.ran and not failures}
        wanted_T = np.zeros(len(trajectory))
        for span in trajectory.decisions:
            wanted_T[span.start : span.end] = span.turn not in failed
        wanted.append(wanted_T)
    return rows_of(trajectories, wanted)


def _mean_length(rows: list[Row]) -> int:
    return int(np.mean([len(row.token_ids_T) for row in rows]))


def _evaluate(loaded: LoadedModel, sources: Sources, episodes: int) -> dict[str, Any]:
    """Return held-out success of each source with its 95 % interval, sampled at temperature 1."""
    policy = TransformersPolicy(loaded.model)
    found = {}
    for name, options, _ in sources:
        seeds = [seeds_of(7_919, index) for index in range(episodes)]
        waiting = [
            Episode(f"e{i}", "", s, seeds_of(s, 1), seeds_of(s, 2), {**options, "split": "heldout"})
            for i, s in enumerate(seeds)
        ]
        lived = live(waiting, policy, partial(load_env, name), loaded.renderer, Limits(64, 1024), at_once=100)
        result = summarise(lived)
        found[" ".join([name, *options.values()])] = {
            "success": round(result.success, 3),
            "interval": [round(result.success_low, 3), round(result.success_high, 3)],
            "charges": round(result.charges, 3),
        }
    return found


def _save(loaded: LoadedModel, out: Path) -> None:
    """Save in half precision; training goes on in single."""
    save_model(loaded._replace(model=copy.deepcopy(loaded.model).to(torch.float16)), out)


if __name__ == "__main__":
    main()
