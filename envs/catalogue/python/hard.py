"""Hard problems: lists, mappings and stacks with edge cases that the examples do not show."""

from collections.abc import Callable
from typing import Any

import numpy as np

from accredit.envs.catalogue.words import ITEMS, NAMES

from .problem import Arguments, Draft

__all__ = ["draw_hard"]

_ENDING = {2: "nd", 3: "rd", 4: "th"}


def draw_hard(rng: np.random.Generator) -> Draft:
    """Draw one of the problems below with numbers of its own."""
    return _KINDS[int(rng.integers(len(_KINDS)))](rng)


def _group(rng: np.random.Generator) -> Draft:
    above = int(rng.integers(1, 9))
    said, value = [("sum", "groups.get(name, 0) + n"), ("largest", "max(groups.get(name, n), n)")][int(rng.integers(2))]
    return Draft(
        f"f(pairs): pairs are [name, n]. Return a dict of each name to the {said} of its n above {above}. "
        "Leave out names without any.",
        f"def f(pairs):\n    groups = {{}}\n    for name, n in pairs:\n        if n > {above}:\n"
        f"            groups[name] = {value}\n    return groups",
        lambda drawing: (_pairs(drawing, int(drawing.integers(3, 7))),),
        slips=((f"> {above}", f">= {above}"), (f"> {above}", "> 0"), (value, "n")),
        edges=(([],), ([["adam", above]],)),
    )


def _kth(rng: np.random.Generator) -> Draft:
    k = int(rng.integers(2, 5))
    said, order = [("largest", ", reverse=True"), ("smallest", "")][int(rng.integers(2))]
    other = int(rng.integers(1, 10))
    return Draft(
        f"f(numbers): Return the {k}{_ENDING[k]} {said} of the different numbers, or -{other} if there are fewer.",
        f"def f(numbers):\n    different = sorted(set(numbers){order})\n    if len(different) < {k}:\n"
        f"        return -{other}\n    return different[{k} - 1]",
        _numbers(5, 9),
        slips=(("set(numbers)", "numbers"), (f"[{k} - 1]", f"[{k} - 2]"), (f"-{other}\n", "0\n")),
        edges=(([],), ([3] * k,)),
    )


def _runs(rng: np.random.Generator) -> Draft:
    least, by = int(rng.integers(2, 4)), int(rng.integers(1, 10))
    gain = "" if by == 1 else f" times {by}"
    factor = "" if by == 1 else f" * {by}"
    return Draft(
        f"f(s): Return [letter, length{gain}] for each run of equal letters in s of at least {least}.",
        "def f(s):\n    runs = []\n    for letter in s:\n        if runs and runs[-1][0] == letter:\n"
        "            runs[-1][1] += 1\n        else:\n            runs.append([letter, 1])\n"
        f"    return [[letter, n{factor}] for letter, n in runs if n >= {least}]",
        _run_text,
        slips=((f">= {least}", f"> {least}"), (f" if n >= {least}", ""), ("[letter, 1]", "[letter, 0]")),
        edges=(("",), ("a",), ("b" * least,)),
    )


def _merge(rng: np.random.Generator) -> Draft:
    gap = int(rng.integers(0, 20))
    return Draft(
        f"f(spans): spans are [start, end]. Sort them and merge those at most {gap} apart.",
        "def f(spans):\n    merged = []\n    for start, end in sorted(spans):\n"
        f"        if merged and start - merged[-1][1] <= {gap}:\n"
        "            merged[-1][1] = max(merged[-1][1], end)\n        else:\n"
        "            merged.append([start, end])\n    return merged",
        _spans,
        slips=((f"<= {gap}", f"< {gap}"), ("max(merged[-1][1], end)", "end"), ("sorted(spans)", "spans")),
        edges=(([],), ([[0, 5], [5 + gap, 40], [1, 2]],), ([[0, 9], [1, 2]],)),
    )


def _common(rng: np.random.Generator) -> Draft:
    least = int(rng.integers(3, 7))
    other = ITEMS[int(rng.integers(len(ITEMS)))]
    return Draft(
        f"f(s): The most frequent word of s with at least {least} letters, the first in the alphabet of equals; "
        f"{other!r} if there is none.",
        "def f(s):\n    counts = {}\n    for word in s.split():\n"
        f"        if len(word) >= {least}:\n            counts[word] = counts.get(word, 0) + 1\n"
        f"    if not counts:\n        return {other!r}\n"
        "    return sorted(counts, key=lambda word: (-counts[word], word))[0]",
        _frequent,
        slips=((f">= {least}", f"> {least}"), ("(-counts[word], word)", "-counts[word]"), ("[0]", "[-1]")),
        edges=(("",), ("a b",), ("table chairs chairs table",)),
    )


def _chunks(rng: np.random.Generator) -> Draft:
    size = int(rng.integers(2, 7))
    said, reduce = [("sum", "sum"), ("largest", "max"), ("smallest", "min")][int(rng.integers(3))]
    kept = rng.random() < 0.5
    tail = "The last piece may be shorter." if kept else "Drop a shorter last piece."
    bound = "len(numbers)" if kept else f"len(numbers) - {size - 1}"
    return Draft(
        f"f(numbers): Cut the list into pieces of {size}; return a list of the {said} of each. {tail}",
        f"def f(numbers):\n    values = []\n    for start in range(0, {bound}, {size}):\n"
        f"        values.append({reduce}(numbers[start:start + {size}]))\n    return values",
        _numbers(5, 11),
        slips=((bound, f"len(numbers) - {size}" if kept else "len(numbers)"), (f"+ {size}]", f"+ {size + 1}]")),
        edges=(([],), ([4],), (list(range(size)),)),
    )


def _brackets(rng: np.random.Generator) -> Draft:
    most = int(rng.integers(1, 6))
    opening, closing = ["()", "[]", "{}", "<>"][int(rng.integers(4))]
    return Draft(
        f"f(s): True if the {opening}{closing} in s are balanced and at most {most} deep, else False.",
        f"def f(s):\n    depth = 0\n    for letter in s:\n        if letter == {opening!r}:\n            depth += 1\n"
        f"        if letter == {closing!r}:\n            depth -= 1\n        if depth < 0 or depth > {most}:\n"
        "            return False\n    return depth == 0",
        lambda drawing: (_nested(drawing, opening, closing),),
        slips=(("depth < 0 or ", ""), (f" or depth > {most}", ""), ("return depth == 0", "return True")),
        edges=(
            ("",),
            (closing + opening,),
            (opening * most + closing * most,),
            (opening * (most + 1) + closing * (most + 1),),
        ),
    )


def _rotate(rng: np.random.Generator) -> Draft:
    by = int(rng.integers(1, 10))
    said, cut = [("left", "by"), ("right", "len(kept) - by")][int(rng.integers(2))]
    return Draft(
        f"f(numbers): Drop repeated numbers, keep the first of each; then rotate the list {by} to the {said}.",
        "def f(numbers):\n    kept = []\n    for number in numbers:\n        if number not in kept:\n"
        "            kept.append(number)\n    if not kept:\n        return []\n"
        f"    by = {by} % len(kept)\n    return kept[{cut}:] + kept[:{cut}]",
        _numbers(4, 9),
        slips=((f"{by} % len(kept)", f"{by}"), ("if number not in kept", "if True"), (f"by = {by}", f"by = {by + 1}")),
        edges=(([],), ([7],), ([1, 1],)),
    )


def _stack(rng: np.random.Generator) -> Draft:
    start = int(rng.integers(0, 10))
    word, operation = [("add", "+"), ("mul", "*"), ("sub", "-")][int(rng.integers(3))]
    said = {"add": "sum", "mul": "product", "sub": "difference"}[word]
    return Draft(
        f"f(commands): A stack starts with {start}. A number is pushed, 'pop' drops the top, {word!r} replaces the top "
        f"two by their {said}. Skip what cannot be done. Return the stack.",
        f"def f(commands):\n    stack = [{start}]\n    for command in commands:\n        if command == 'pop':\n"
        f"            if stack:\n                stack.pop()\n        elif command == {word!r}:\n"
        "            if len(stack) > 1:\n                top = stack.pop()\n"
        f"                stack[-1] = stack[-1] {operation} top\n        else:\n"
        "            stack.append(command)\n    return stack",
        lambda drawing: (_commands(drawing, word),),
        slips=(
            ("len(stack) > 1", "len(stack) > 2"),
            (f"= stack[-1] {operation}", "= 0 +"),
            ("[-1] = stack[-1]", "[0] = stack[-1]"),
        ),
        edges=(([],), (["pop", "pop", word, 3],), ([word],)),
    )


def _matrix(rng: np.random.Generator) -> Draft:
    extra = int(rng.integers(2, 10))
    said, reduce = [("sum", "sum"), ("largest", "max"), ("smallest", "min")][int(rng.integers(3))]
    return Draft(
        f"f(rows): rows are lists of equal length. Return the {said} of each column, times {extra}; [] without rows.",
        "def f(rows):\n    values = []\n    for column in zip(*rows):\n"
        f"        values.append({reduce}(column) * {extra})\n"
        "    return values",
        _rows,
        slips=(("zip(*rows)", "rows"), (f"* {extra}", f"+ {extra}"), (f"{reduce}(column)", "column[0]")),
        edges=(([],), ([[]],), ([[5]],)),
    )


def _pairs(rng: np.random.Generator, count: int) -> list[list[Any]]:
    names = [NAMES[int(at)] for at in rng.choice(len(NAMES), size=3, replace=False)]
    return [[names[int(rng.integers(3))], int(rng.integers(0, 15))] for _ in range(count)]


def _numbers(fewest: int, most: int) -> Callable[[np.random.Generator], Arguments]:
    return lambda rng: ([int(n) for n in rng.integers(0, 9, int(rng.integers(fewest, most + 1)))],)


def _run_text(rng: np.random.Generator) -> Arguments:
    return ("".join("abc"[int(rng.integers(3))] * int(rng.integers(1, 5)) for _ in range(int(rng.integers(3, 6)))),)


def _spans(rng: np.random.Generator) -> Arguments:
    starts = [int(n) for n in rng.integers(0, 60, int(rng.integers(3, 5)))]
    return ([[start, start + int(rng.integers(1, 15))] for start in starts],)


def _frequent(rng: np.random.Generator) -> Arguments:
    words = [ITEMS[int(at)] for at in rng.choice(len(ITEMS), size=3, replace=False)]
    return (" ".join(words[int(rng.integers(3))] for _ in range(int(rng.integers(4, 8)))),)


def _nested(rng: np.random.Generator, opening: str, closing: str) -> str:
    text, depth = "", 0
    for _ in range(int(rng.integers(4, 9))):
        opens = depth == 0 or rng.random() < 0.55
        text += opening if opens else closing
        depth += 1 if opens else -1
    return text + closing * (depth if rng.random() < 0.7 else 0)


def _commands(rng: np.random.Generator, word: str) -> list[Any]:
    drawn = rng.random(int(rng.integers(4, 8))).tolist()
    return [int(rng.integers(1, 9)) if part < 0.55 else word if part < 0.85 else "pop" for part in drawn]


def _rows(rng: np.random.Generator) -> Arguments:
    width = int(rng.integers(2, 4))
    return ([[int(n) for n in rng.integers(0, 10, width)] for _ in range(int(rng.integers(2, 4)))],)


_KINDS: tuple[Callable[[np.random.Generator], Draft], ...] = (
    _group,
    _kth,
    _runs,
    _merge,
    _common,
    _chunks,
    _brackets,
    _rotate,
    _stack,
    _matrix,
)
