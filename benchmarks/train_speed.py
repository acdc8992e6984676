"""Times the loss step (forward and backward pass) of a pretrained model beside TRL's GRPOTrainer on the same sequences.

A group: members that share a prompt and go on by turns of decisions and feedback, random tokens, float32. Every way of
computing its gradient lives in a process of its own and they take turns, round after round, so that a busy machine
slows all alike:

- `accredit`: as the trainer does it, the prompt once, no padding, the head before decisions alone;
- `padded rows`: the rows side by side, the same head;
- `dense mask`: packed like `accredit`, but attending through a [T, T] mask;
- `trl`: GRPOTrainer's own loss, in the environment of `--peer-python` (torch of the same version, and trl).

"+" computes activations again in the backward pass (gradient checkpointing). Tokens a second count the trajectories'
tokens, whatever was computed of them; the share of the ceiling is floating-point operations done (recomputation not
counted) per second, over those of a float32 product of square matrices in the same round. Peak memory is that of the
process, above what it held before the model was loaded. Medians of the rounds. The gradients are compared, too.
"""

import argparse
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TARGET_SPEED, TARGET_MEMORY = 1.5, 0.5


class Work(NamedTuple):
    """What a way of computing puts through the body, through attention (pairs of tokens) and through the head."""

    tokens: int
    pairs: int
    scored: int


class Step(NamedTuple):
    """A step to be timed: each of `passes` returns a part of the loss; `work` is what they go through together."""

    model: Any
    passes: list[Callable[[], Any]]
    work: Work


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="interpreter of an environment with trl; without it there is no peer")
    parser.add_argument("--model", default="smollm2", help="as in model.path")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of all trajectories together")
    parser.add_argument("--group", type=int, default=8, help="members of the group")
    parser.add_argument("--prompt", type=int, default=192, help="tokens of the prompt that they share")
    parser.add_argument("--micro-tokens", type=int, default=16_384, help="optimizer.micro_tokens of `accredit`")
    parser.add_argument("--peer-rows", type=int, default=8, help="rows in a forward pass of `trl`")
    parser.add_argument("--rounds", type=int, default=5, help="times that each takes its turn, after one to warm up")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--ways", nargs="*", help="some of: accredit, padded rows, dense mask, trl; '+' recomputes")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target is missed")
    parser.add_argument("--worker", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        return work(given, *given.worker)
    ways = given.ways or [
        "accredit",
        "accredit+",
        "padded rows",
        "dense mask",
        *(["trl", "trl+"] * bool(given.peer_python)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        unpack(given.model, Path(folder))
        rounds = take_turns(given, ways, folder)
    return report(given, ways, rounds)


def trajectories(
    given: argparse.Namespace, vocabulary: int
) -> list[tuple[list[int], list[tuple[list[int], list[int]]]]]:
    """Return of each member its prompt and its turns, decision and feedback; lengths differ by up to a quarter."""
    rng = np.random.default_rng(0)
    prompt = rng.integers(3, vocabulary, given.prompt).tolist()
    mean = given.tokens / given.group - given.prompt
    lengths = (mean * np.linspace(0.75, 1.25, given.group)).astype(int)
    members = []
    for length in lengths:
        turns = []
        while length > 0:
            size = min(int(length), 60)
            decided = max(1, 24 * size // 60)
            turns.append(
                (rng.integers(3, vocabulary, decided).tolist(), rng.integers(3, vocabulary, size - decided).tolist())
            )
            length -= size
        members.append((prompt, turns))
    return members


def advantages(given: argparse.Namespace, member: int, decided: int) -> np.ndarray:
    """Return the advantages of a member's decision tokens, none of them 0."""
    return np.random.default_rng(member + 1).uniform(0.5, 1.5, decided) * (1 if member % 2 else -1)


def unpack(name: str, folder: Path) -> None:
    """Write the model as a folder that every environment can load."""
    from accredit.agents.models import load_model, save_model

    save_model(load_model(name, device="cpu"), folder)


def take_turns(given: argparse.Namespace, ways: list[str], folder: str) -> dict[str, list[dict[str, Any]]]:
    """Start a process a way and let them step in turn; return what they measured, without the warm-up."""
    names = ("tokens", "group", "prompt", "threads", "micro_tokens", "peer_rows")
    options = [f"--{name.replace('_', '-')}={getattr(given, name)}" for name in names]
    workers = {
        way: subprocess.Popen(
            [
                given.peer_python if way.startswith("trl") else sys.executable,
                __file__,
                *options,
                "--worker",
                way,
                folder,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("VERBOSE") else subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(given.threads), "HF_HUB_OFFLINE": "1"},
        )
        for way in ways
    }
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    try:
        for index in range(given.rounds + 1):
            for way, worker in workers.items():
                assert worker.stdin is not None and worker.stdout is not None
                worker.stdin.write("step\n")
                worker.stdin.flush()
                line = worker.stdout.readline()
                if not line:
                    raise RuntimeError(f"'{way}' ended with {worker.wait()}; VERBOSE=1 shows what it said")
                if index:
                    rounds[way].append(json.loads(line))
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    return rounds


def work(given: argparse.Namespace, way: str, folder: str) -> int:
    """Step whenever a line comes in, and answer with the measurements as a line of JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    import torch

    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    make = trl_step if way.startswith("trl") else our_step
    if make is trl_step:
        import trl  # noqa: F401  # what it weighs is not the model's
    base_mb = status_mb("VmRSS")
    step = make(given, way.removesuffix("+"), folder, checkpointing=way.endswith("+"))
    for _ in sys.stdin:
        step.model.zero_grad(set_to_none=True)
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        spent = np.zeros((2, 2))  # forward and backward; by the clock and of the processor
        for part in step.passes:
            times = [(time.perf_counter(), time.process_time())]
            loss = part()
            times.append((time.perf_counter(), time.process_time()))
            loss.backward()
            times.append((time.perf_counter(), time.process_time()))
            spent += np.diff(times, axis=0)
            del loss
        found = {
            "seconds": spent[:, 0].tolist(),
            "cpu_seconds": spent[:, 1].tolist(),
            "peak_mb": status_mb("VmHWM") - base_mb,
            "ceiling": ceiling(torch),
            "flop": flop(step.model, step.work),
            "norms": {
                name: float(weight.grad.norm())
                for name, weight in step.model.named_parameters()
                if weight.grad is not None
            },
        }
        answers.write(json.dumps(found) + "\n")
        answers.flush()
    return 0


def our_step(given: argparse.Namespace, way: str, folder: str, checkpointing: bool) -> Step:
    import torch

    from accredit.agents.models import load_model
    from accredit.credit import Recorder, StopReason
    from accredit.trainer.batch import collate, micro_batches, rows_of, weigh
    from accredit.trainer.logprobs import score
    from accredit.trainer.loss import policy_loss
    from accredit.trainer.vocabulary import log_probabilities

    model = own_weights(load_model(folder, device="cpu").model, checkpointing)
    lived, priced = [], []
    for member, (prompt, turns) in enumerate(trajectories(given, model.config.vocab_size)):
        recorder = Recorder()
        recorder.prompt(prompt)
        for decision, feedback in turns:
            recorder.decision(decision, np.full(len(decision), -1.0))
            recorder.feedback(feedback)
        lived.append(recorder.finish(1.0, StopReason.DONE))
        priced.append(np.zeros(len(lived[-1])))
        priced[-1][lived[-1].credit_mask] = advantages(given, member, int(lived[-1].credit_mask.sum()))

    rows = weigh(rows_of(lived, priced), "token_mean")

    def loss_of(logprobs_N: Any, batch: Any) -> Any:
        loss_N, _ = policy_loss(logprobs_N, logprobs_N.detach(), batch.advantages_N)
        return (loss_N * batch.weight_N).sum()

    def packed(part: Any) -> Any:
        batch = collate(part)
        return loss_of(score(model, batch).logprobs_N, batch)

    def dense() -> Any:
        batch = collate(rows)
        seen_TT = torch.zeros(len(batch.token_ids_T), len(batch.token_ids_T), dtype=torch.bool)
        for path in batch.paths:
            seen_TT[np.ix_(path, path)] = torch.ones(len(path), len(path), dtype=torch.bool).tril()
        hidden_TD = model.base_model(
            input_ids=batch.token_ids_T[None],
            position_ids=batch.positions_T[None],
            attention_mask=seen_TT[None, None],
            use_cache=False,
        ).last_hidden_state[0]
        scores = log_probabilities(hidden_TD[batch.source_U], model.lm_head.weight, None, batch.labels_U)
        return loss_of(scores.logprobs_N[batch.unique_N], batch)

    def padded() -> Any:
        ids_RT = torch.zeros(len(rows), max(len(row.token_ids_T) for row in rows), dtype=torch.long)
        for index, row in enumerate(rows):
            ids_RT[index, : len(row.token_ids_T)] = torch.from_numpy(row.token_ids_T.astype(np.int64))
        hidden_RTD = model.base_model(input_ids=ids_RT, use_cache=False).last_hidden_state
        hidden_ND = torch.cat([hidden_RTD[index, row.targets_N - 1] for index, row in enumerate(rows)])
        batch = collate(rows)
        scores = log_probabilities(hidden_ND, model.lm_head.weight, None, batch.labels_N)
        return loss_of(scores.logprobs_N, batch)

    if way == "padded rows":
        longest, decided = max(len(row.token_ids_T) for row in rows), sum(len(row.targets_N) for row in rows)
        return Step(model, [padded], Work(len(rows) * longest, len(rows) * longest * (longest + 1) // 2, decided))
    parts = [rows] if way == "dense mask" else list(micro_batches(rows, given.micro_tokens))
    batches = [collate(part) for part in parts]
    done = Work(
        sum(len(batch.token_ids_T) for batch in batches),
        sum(int(batch.positions_T.sum()) + len(batch.positions_T) for batch in batches),
        sum(len(batch.labels_U) for batch in batches),
    )
    return Step(model, [dense] if way == "dense mask" else [partial(packed, part) for part in parts], done)


def trl_step(given: argparse.Namespace, _: str, folder: str, checkpointing: bool) -> Step:
    import torch
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model = own_weights(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), checkpointing)
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=f"{folder}/trl",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=checkpointing,
            per_device_train_batch_size=given.group,
            num_generations=given.group,
            report_to="none",
        ),
        train_dataset=Dataset.from_dict({"prompt": ["a"] * given.group}),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder),
    )
    trainer.current_gradient_accumulation_steps = 1
    members = trajectories(given, model.config.vocab_size)
    last = [sum(len(d) + len(f) for d, f in turns[:-1]) + len(turns[-1][0]) for _, turns in members]
    shape = (given.group, max(last))  # like ours, it ends with the last decision
    ids, present, decided = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    priced = torch.zeros(shape)
    for row, (_, turns) in enumerate(members):
        column = 0
        for decision, feedback in turns:
            for part, mine in ((decision, 1), (feedback, 0)):
                part = part[: last[row] - column]
                ids[row, column : column + len(part)] = torch.tensor(part, dtype=torch.long)
                present[row, column : column + len(part)] = 1
                decided[row, column : column + len(part)] = mine
                column += len(part)
        priced[row, decided[row].bool()] = torch.from_numpy(advantages(given, row, int(decided[row].sum()))).float()
    prompts = torch.tensor([prompt for prompt, _ in members])
    inputs = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": ids,
        "completion_mask": present,
        "tool_mask": decided,
        "advantages": priced,
        "num_items_in_batch": decided.sum(),
    }
    model.train()
    length = given.prompt + shape[1]
    # off accelerators it scores every position, whatever the labels
    work = Work(given.group * length, given.group * length * (length + 1) // 2, given.group * (length - 1))
    whole = ("num_items_in_batch",)
    parts = [
        {name: value if name in whole else value[at : at + given.peer_rows] for name, value in inputs.items()}
        for at in range(0, given.group, given.peer_rows)
    ]
    return Step(model, [partial(trainer._compute_loss, model, part) for part in parts], work)


def own_weights(model: Any, checkpointing: bool) -> Any:
    """Copy the weights out of the file that they are mapped from, so that they count as memory."""
    for weight in model.parameters():
        weight.data = weight.data.clone()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def status_mb(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def ceiling(torch: Any) -> float:
    """Return the floating-point operations a second of a float32 product, the best of five."""
    a, b = torch.randn(1536, 1536), torch.randn(1536, 1536)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - started)
    return 2 * 1536**3 / min(seconds)


def flop(model: Any, work: Work) -> float:
    """Return the operations of the forward pass: 2 a weight and token, 4 a head dimension and pair; without softmax."""
    config = model.config
    body = sum(weight.numel() for name, weight in model.named_parameters() if ".layers." in name and weight.dim() == 2)
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    attention = 4 * config.num_hidden_layers * width * work.pairs
    return 2 * body * work.tokens + attention + 2 * config.hidden_size * config.vocab_size * work.scored


def report(given: argparse.Namespace, ways: list[str], rounds: dict[str, list[dict[str, Any]]]) -> int:
    def median(way: str, read: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(read(found) for found in rounds[way])

    print(
        f"{given.tokens:,} tokens: a group of {given.group} behind {given.prompt} tokens; load {os.getloadavg()[0]:.1f}"
    )
    print("| | tokens/s | by processor time | forward s | backward s | of the ceiling, forward, backward | peak MB |")
    print("|---|---|---|---|---|---|---|")
    speed = {way: given.tokens / median(way, lambda found: sum(found["seconds"])) for way in ways}
    cpu_speed = {way: given.tokens / median(way, lambda found: sum(found["cpu_seconds"])) for way in ways}
    peak_mb = {way: median(way, lambda found: found["peak_mb"]) for way in ways}
    for way in ways:
        seconds = [median(way, lambda found, at=at: found["seconds"][at]) for at in (0, 1)]
        shares = [
            median(way, lambda found, at=at: (at + 1) * found["flop"] / found["seconds"][at] / found["ceiling"])
            for at in (0, 1)
        ]
        print(
            f"| {way} | {speed[way]:.0f} | {cpu_speed[way]:.0f} | {seconds[0]:.2f} | {seconds[1]:.2f} "
            f"| {shares[0]:.0%}, {shares[1]:.0%} | {peak_mb[way]:,.0f} |"
        )
    missed = False
    for ours, theirs in (("accredit", "trl"), ("accredit+", "trl+"), ("accredit", "trl+")):
        if ours in ways and theirs in ways:
            faster, smaller = speed[ours] / speed[theirs], peak_mb[ours] / peak_mb[theirs]
            print(
                f"{ours} against {theirs}: {faster:.2f} times the tokens/s "
                f"({cpu_speed[ours] / cpu_speed[theirs]:.2f} by processor time), {smaller:.2f} of the peak memory"
            )
            if ours.endswith("+") == theirs.endswith("+"):
                missed |= faster < TARGET_SPEED or smaller > TARGET_MEMORY
    first = rounds[ways[0]][0]["norms"]
    for way in ways[1:]:
        norms = rounds[way][0]["norms"]
        apart = max(abs(norms[name] / norm - 1) for name, norm in first.items())
        print(f"norms of the gradients, {way} against {ways[0]}: at most {apart:.1e} apart")
    return 1 if missed and given.strict else 0


if __name__ == "__main__":
    sys.exit(main())
