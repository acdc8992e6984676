"""Episodes to look at: rollouts of a small shop task, priced the way an anchored credit function prices them.

The tokens are words and bytes: frequent words have an id of their own, everything else is spelled in bytes (id = byte).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from accredit.credit import Call, CallStatus, Credit, Group, Ledger, Recorder, StopReason, Trajectory
from accredit.credit.traces import TraceWriter

SPECIALS = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
_SPLIT = re.compile("|".join(map(re.escape, SPECIALS)) + r"| ?[A-Za-z]+|\d|\s+|[^\w\s]| ?\w+")


class WordTokens:
    """A vocabulary that grows: 0..255 are bytes, then the specials, then words as they come."""

    def __init__(self) -> None:
        self.texts: list[bytes] = [bytes([i]) for i in range(256)] + [text.encode() for text in SPECIALS]
        self.ids = {text: i for i, text in enumerate(self.texts)}

    def encode(self, text: str, specials: bool = False) -> list[int]:
        found: list[int] = []
        for piece in _SPLIT.findall(text):
            raw = piece.encode()
            if (piece in SPECIALS and not specials) or not raw.isascii():
                found.extend(raw)
                continue
            if raw not in self.ids:
                self.ids[raw] = len(self.texts)
                self.texts.append(raw)
            found.append(self.ids[raw])
        return found

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        return [self.texts[i] for i in ids]


class Turn:
    """One turn of a script: what the policy wrote, and how its call ended."""

    def __init__(
        self, thought: str, name: str = "", arguments: dict | None = None, result: str = "", fault: str = "",
        status: CallStatus = CallStatus.OK, worth: float = 0.0, luck: float = 0.0,
    ) -> None:  # fmt: skip
        self.thought, self.name, self.arguments, self.result = thought, name, arguments, result
        self.fault, self.status, self.worth, self.luck = fault, status, worth, luck


SYSTEM = """You run a small shop. Work with the tools, one step at a time, and answer when the order is settled.

# Tools
price(item: string): what one piece costs today
stock(item: string): how many pieces are left
order(item: string, qty: integer): place the order
"""
TASK = "A customer wants oak and pine boards for at most 40 coins. Buy twice as much oak as pine, as much as fits."


def rollout(words: WordTokens, index: int, turns: Sequence[Turn], outcome: float | None, rng: np.random.Generator):
    recorder = Recorder(
        "accredit/Shop-v0",
        "boards-40",
        f"ep-{index}",
        "boards-40/s12",
        {"environment": 7, "sampler": 100 + index},
        "k0",
    )

    def template(text: str) -> list[int]:
        return words.encode(text, specials=True)

    recorder.scaffold(template("<|im_start|>system\n"))
    recorder.prompt(words.encode(SYSTEM))
    recorder.scaffold(template("<|im_end|>\n<|im_start|>user\n"))
    recorder.prompt(words.encode(TASK))
    recorder.scaffold(template("<|im_end|>\n<|im_start|>assistant\n"))
    worth: list[tuple[int, int, float]] = []
    luck: list[tuple[int, int, float]] = []
    for number, turn in enumerate(turns):
        body = ""
        if turn.name:
            call = json.dumps({"name": turn.name, "arguments": turn.arguments}, ensure_ascii=False)
            body = f"<tool_call>{call}</tool_call>"
        ids = template(turn.thought + body + "<|im_end|>")
        logprobs = -np.abs(rng.gamma(0.35, 0.9, len(ids)))
        start, end = recorder.decision(ids, logprobs, policy_version=12)
        worth.append((start, end, turn.worth))
        if turn.name:
            begin = start + len(template(turn.thought))
            where = _find(words, ids, turn.fault, start) if turn.fault else (begin, end - 1)
            failed = not turn.status.ran
            reported = {"exit_status": 1, "isolation": "namespace"} if turn.status is CallStatus.NONZERO_EXIT else {}
            at = recorder.call(
                Call(
                    number, begin, end - 1, f"call-{number}", turn.name, turn.arguments, turn.status, turn.result,
                    duration_s=float(rng.uniform(0.004, 0.06)), detail=reported,
                )
            )  # fmt: skip
            if failed:
                recorder.charge(*where, 0.1, turn.status.value, at)
        recorder.timing(number * 0.8, number * 0.8 + 0.7)
        recorder.state_key(f"k{number + 1}")
        if turn.name:
            recorder.scaffold(template("\n<|im_start|>tool\n"))
            begin = len(recorder)
            recorder.feedback(words.encode(turn.result))
            luck.append((begin, len(recorder), turn.luck))
            recorder.scaffold(template("<|im_end|>\n<|im_start|>assistant\n"))
    stop = StopReason.DONE if outcome is not None else StopReason.INFRASTRUCTURE
    trajectory = recorder.finish(outcome, stop, seconds=len(turns) * 0.8)
    return trajectory, credit_of(trajectory, worth, luck)


def _find(words: WordTokens, ids: list[int], text: str, start: int) -> tuple[int, int]:
    """Return the tokens of `text`, counted from `start`."""
    ends = np.cumsum([len(words.texts[i]) for i in ids])
    at = b"".join(words.texts[i] for i in ids).index(text.encode())
    first, last = (
        int(np.searchsorted(ends, at, "right")),
        int(np.searchsorted(ends, at + len(text.encode()) - 1, "right")),
    )
    return start + first, start + last + 1


def credit_of(
    trajectory: Trajectory, worth: Sequence[tuple[int, int, float]], luck: Sequence[tuple[int, int, float]]
) -> Credit:
    """Spread a turn's worth evenly over its decision tokens in `credit`; give all of it to each in `advantage`."""
    length = len(trajectory)
    names = ["outcome", "luck"]
    credit = {name: np.zeros(length) for name in names}
    advantage = {"outcome": np.zeros(length)}
    for start, end, value in worth:
        credit["outcome"][start:end] = value / (end - start)
        advantage["outcome"][start:end] = value
    for start, end, value in luck:
        credit["luck"][start:end] = value / (end - start)
    for charge in trajectory.charges:
        name = f"charge:{charge.reason}"
        for terms, share in ((credit, charge.end - charge.start), (advantage, 1)):
            terms.setdefault(name, np.zeros(length))[charge.start : charge.end] -= charge.amount / share
    return Credit(Ledger(length, credit), Ledger(length, advantage))


def shop_group(seed: int = 3) -> tuple[WordTokens, Group, list[Credit]]:
    words, rng = WordTokens(), np.random.default_rng(seed)
    price_oak = Turn("I need both prices first. ", "price", {"item": "oak"}, '{"item": "oak", "price": 5}', worth=0.06)
    price_pine = Turn("", "price", {"item": "pine"}, '{"item": "pine", "price": 3}', worth=0.0)
    stock = Turn(
        "Is there enough oak left? ", "stock", {"item": "oak"}, '{"item": "oak", "left": 6}', worth=0.11, luck=-0.08
    )
    typo = Turn(
        "Now the other wood. ", "price", {"item": "pine tree"}, 'unknown item "pine tree": expected ash, oak or pine',
        '"pine tree"', CallStatus.INVALID_ARGUMENTS, worth=-0.07,
    )  # fmt: skip
    broken = Turn(
        "Go – größer geht nicht 🙂. ", "order", {"item": "oak", "qty": "six"}, "qty: expected an integer, not 'six'",
        '"six"', CallStatus.INVALID_ARGUMENTS, worth=-0.12,
    )  # fmt: skip
    order_oak = Turn(
        "6 oak and 3 pine cost 39, which fits. ",
        "order",
        {"item": "oak", "qty": 6},
        '{"ordered": 6, "coins": 10}',
        worth=0.29,
    )
    order_pine = Turn("", "order", {"item": "pine", "qty": 3}, '{"ordered": 3, "coins": 1}', worth=0.15)
    done = Turn("Ordered 6 oak and 3 pine for 39 coins.", worth=0.0)
    few = Turn(
        "4 oak and 2 pine are safe. ", "order", {"item": "oak", "qty": 4}, '{"ordered": 4, "coins": 20}', worth=-0.22
    )
    few_pine = Turn("", "order", {"item": "pine", "qty": 2}, '{"ordered": 2, "coins": 14}', worth=0.02)
    scripts: list[tuple[list[Turn], float | None]] = [
        ([price_oak, typo, price_pine, stock, broken, order_oak, order_pine, done], 1.0),
        ([price_oak, price_pine, stock, order_oak, order_pine, done], 1.0),
        ([price_oak, price_pine, few, few_pine, Turn("Ordered 4 oak and 2 pine.", worth=0.0)], 0.6),
        ([typo, typo, broken, Turn("I could not order anything.", worth=-0.31)], 0.0),
        ([price_oak, stock, few, Turn("Ordered 4 oak.", worth=-0.18)], 0.25),
        ([price_oak, price_pine], None),
    ]
    found = [rollout(words, index, turns, outcome, rng) for index, (turns, outcome) in enumerate(scripts)]
    return words, Group(tuple(t for t, _ in found)), [credit for _, credit in found]


def write_shop_run(folder: Path) -> Path:
    words, group, credits = shop_group()
    TraceWriter(folder / "traces").write(12, [group], [credits], words.token_bytes)
    return folder


def write_two_steps(folder: Path) -> Path:
    """Write a run of two steps of one task, with metrics; in step 4 `ep-0` and `ep-2` are a counterfactual pair."""
    writer = TraceWriter(folder / "traces")
    for step, seed in ((4, 5), (12, 3)):
        words, group, credits = shop_group(seed)
        members = list(group.trajectories)
        if step == 4:
            members = [replace(t, group="boards-40/s4") for t in members]
            for place in (0, 2):
                members[place] = replace(members[place], seeds={**members[place].seeds, "pair": 0, "fork_turn": 2})
        writer.write(step, [Group(tuple(members))], [credits], words.token_bytes)
    lines = [
        {"step": step, "rollout/reward": 0.2 + step / 40, "rollout/tokens": 500.0, "rollout/decision_tokens": 125.0,
         "rollout/no_spread_share": 0.25, "charges/invalid_arguments": 1.5, "policy/entropy_nats": 0.3}
        for step in (4, 12)
    ]  # fmt: skip
    lines.append(
        {"step": 12, "eval/success": 0.5, "eval/success_low": 0.3, "eval/success_high": 0.7, "eval/reward": 0.6}
    )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder
