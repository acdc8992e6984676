"""Jobs in a project: what is asked, the files that must come of it, and the commands of one who knows how.

The files that must come of it are worked out here in Python, not by running the commands. A job's identity is what it
asks, with the words that it names; the project around it is drawn anew.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from accredit.envs.catalogue.words import ITEMS, WORDS

from .project import Project, draw_project, draw_words

__all__ = ["LEVELS", "Job"]


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        identity: what is asked.
        text: the same in words.
        files: the project at the start, by path.
        tree: what the folder must hold at the end, folders among it.
        commands: what the expert runs.
        answer: the last word of the right answer, None where none is asked for.
        fixed: the one file that may come out as it likes, if the check passes.
        probe: Python code that checks it from outside, with what it must print in `printed`.

    """

    identity: str
    text: str
    files: Mapping[str, str]
    tree: Mapping[str, str]
    commands: tuple[str, ...]
    answer: str | None = None
    fixed: str | None = None
    probe: str = ""
    printed: str = ""


Maker = Callable[[np.random.Generator], Job]


def tree_of(files: Mapping[str, str], folders: tuple[str, ...] = ()) -> dict[str, str]:
    """Return files with the folders that hold them; `folders` are there even if they are empty."""
    found = {"/".join(path.split("/")[:depth]): "<folder>" for path in files for depth in range(1, path.count("/") + 1)}
    return {**found, **dict.fromkeys(folders, "<folder>"), **files}


def _asked(identity: str, text: str, project: Project, commands: tuple[str, ...], answer: str) -> Job:
    return Job(identity, text, project.files, tree_of(project.files), commands, answer)


def _changed(identity: str, text: str, project: Project, commands: tuple[str, ...], files: Mapping[str, str]) -> Job:
    kept = tuple(path for path, content in tree_of(project.files).items() if content == "<folder>")
    return Job(identity, text, project.files, tree_of(files, kept), commands)


# Easy: one or two commands


def _where_defined(rng: np.random.Generator) -> Job:
    (name,) = draw_words(rng, ITEMS, 1)
    project = draw_project(rng, functions=[name])
    command = f"grep -rl 'def {name}(' src"
    return _asked(f"where {name}", f"Which file in src defines {name}?", project, (command,), project.defined[name])


def _count_lines(rng: np.random.Generator) -> Job:
    (word,) = draw_words(rng, WORDS, 1)
    project = draw_project(rng, noted=[word])
    lines = sum(word in line for path in project.notes for line in project.files[path].splitlines())
    command = f"cat docs/* | grep -c {word}"
    return _asked(f"lines {word}", f"How many lines in docs hold {word}?", project, (command,), str(lines))


def _move_one(rng: np.random.Generator) -> Job:
    (target,) = draw_words(rng, WORDS, 1)
    project = draw_project(rng, settings=[target])  # so that no file has this name
    source = project.notes[int(rng.integers(len(project.notes)))]
    files = dict(project.files)
    files[f"docs/{target}.txt"] = files.pop(source)
    text = f"Rename {source} to docs/{target}.txt."
    return _changed(f"rename to {target}", text, project, (f"mv {source} docs/{target}.txt",), files)


def _set_one(rng: np.random.Generator) -> Job:
    (key,), value = draw_words(rng, WORDS, 1), int(rng.integers(100, 1000))
    project = draw_project(rng, settings=[key])
    path = next(path for path in project.confs if f"{key} = " in project.files[path])
    files = dict(project.files)
    files[path] = re.sub(rf"^{key} = \d+$", f"{key} = {value}", files[path], flags=re.MULTILINE)
    command = f"sed -i 's/^{key} = .*/{key} = {value}/' {path}"
    return _changed(f"set {key} {value % 10}", f"Set {key} to {value} in {path}.", project, (command,), files)


# Medium: rules over many files


def _rename_setting(rng: np.random.Generator) -> Job:
    old, new = draw_words(rng, WORDS, 2)
    project = draw_project(rng, settings=[old], noted=[new])
    files = dict(project.files)
    for path in project.confs:
        files[path] = re.sub(rf"^{old} = ", f"{new} = ", files[path], flags=re.MULTILINE)
    text = f"Rename the setting {old} to {new} in all files of conf. Other settings stay."
    commands = (f"grep -l '^{old} = ' conf/*", f"sed -i 's/^{old} = /{new} = /' conf/*")
    return _changed(f"rename {old} {new}", text, project, commands, files)


def _file_away(rng: np.random.Generator) -> Job:
    word, folder = draw_words(rng, WORDS, 2)
    project = draw_project(rng, noted=[word], settings=[folder])
    files = {
        path.replace("docs/", f"{folder}/") if path in project.notes and word in text else path: text
        for path, text in project.files.items()
    }
    text = f"Move the files of docs that hold the word {word} to a new folder {folder}."
    commands = (f"grep -l {word} docs/*", f"mkdir {folder} && mv $(grep -l {word} docs/*) {folder}")
    return _changed(f"file away {word} {folder}", text, project, commands, files)


def _clear_logs(rng: np.random.Generator) -> Job:
    (word,) = draw_words(rng, WORDS, 1)
    project = draw_project(rng, settings=[word])
    good = [path for path in project.logs if "error" not in project.files[path]]
    files = {path: text for path, text in project.files.items() if path not in good}
    files[f"{word}.txt"] = "".join(f"{path.removeprefix('logs/')}\n" for path in project.logs if path in files)
    text = f"Delete the logs without an error. Then write the names left in logs to {word}.txt, sorted, one a line."
    commands = ("grep -L error logs/*", "rm $(grep -L error logs/*)", f"ls logs > {word}.txt")
    return _changed(f"clear logs {word}", text, project, commands, files)


def _add_missing(rng: np.random.Generator) -> Job:
    (key,), value = draw_words(rng, WORDS, 1), int(rng.integers(1, 10))
    project = draw_project(rng, settings=[key])
    files = dict(project.files)
    for path in project.confs:
        if f"{key} = " not in files[path]:
            files[path] += f"{key} = {value}\n"
    text = f"Add the line '{key} = {value}' at the end of each file of conf that has no setting {key}."
    loop = f"for f in $(grep -L '^{key} = ' conf/*); do echo '{key} = {value}' >> $f; done"
    return _changed(f"add {key} {value}", text, project, (f"grep -L '^{key} = ' conf/*", loop), files)


# Hard: several steps, or a script to fix


def _fix_call(rng: np.random.Generator) -> Job:
    name, twin = draw_words(rng, ITEMS, 2)
    project = draw_project(rng, functions=[name, twin])
    shown = [int(n) for n in rng.integers(2, 50, 3)]
    module = project.defined[name].removeprefix("src/").removesuffix(".py")
    factors = {
        function: int(re.search(rf"def {function}\(n\):\n.*\n    return n \* (\d+)", project.files[path])[1])  # type: ignore[index]
        for function, path in project.defined.items()
    }
    wrong = next(other for other in (twin, *project.defined) if project.defined[other] != project.defined[name])
    main = f"from {module} import {wrong}\n\n\ndef total(numbers):\n    return sum({wrong}(n) for n in numbers[1:])\n"
    right = main.replace(wrong, name).replace("[1:]", "")
    files = {**project.files, "src/main.py": main}
    project = Project(files, *list(vars(project).values())[1:])
    expected = "".join(f"{sum(factors[name] * n for n in shown[:count])}\n" for count in range(4))
    probe = (
        "import sys; sys.path.insert(0, 'src'); sys.dont_write_bytecode = True\nfrom main import total\n"
        f"for count in range(4): print(total({shown}[:count]))"
    )
    job = _changed(
        f"fix call {name} {wrong}",
        f"src/main.py is broken: total should sum {name} of all numbers, but it calls another function, and leaves a "
        "number out. Fix that file alone.",
        project,
        ("cat src/main.py", f"sed -i 's/{wrong}/{name}/; s/\\[1:\\]//' src/main.py", "cat src/main.py"),
        {**files, "src/main.py": right},
    )
    return Job(
        job.identity, job.text, job.files, job.tree, job.commands, fixed="src/main.py", probe=probe, printed=expected
    )


def _index(rng: np.random.Generator) -> Job:
    (word,) = draw_words(rng, WORDS, 1)
    while True:
        project = draw_project(rng, noted=[word])
        counts = {path: sum(word in line for line in project.files[path].splitlines()) for path in project.notes}
        found = {path: count for path, count in counts.items() if count}
        if len(found) > 1 and len(set(found.values())) == len(found):
            break
    ranked = sorted(found, key=lambda path: -found[path])
    files = {**project.files, "index.txt": "".join(f"{path} {found[path]}\n" for path in ranked)}
    text = (
        f"Write index.txt: a line for each file of docs that holds {word}, with its path and the number of its lines "
        "that do, like docs/a.txt 2. Most lines first."
    )
    commands = (
        f"grep -c {word} docs/*",
        f"grep -c {word} docs/* | grep -v ':0$' | sort -t: -k2 -nr | tr : ' ' > index.txt",
        "cat index.txt",
    )
    return _changed(f"index {word}", text, project, commands, files)


def _rename_function(rng: np.random.Generator) -> Job:
    old, new = draw_words(rng, ITEMS, 2)
    while True:
        project = draw_project(rng, functions=[old])
        used = sum(f"see {old}\n" in text for text in project.files.values())
        if new not in project.defined and used:
            break
    kept = project.defined[old]
    files = {
        path: re.sub(rf"\b{old}\b", new, text) if path in project.modules else text
        for path, text in project.files.items()
    }
    target = f"src/{new}.py"
    files[target] = files.pop(kept)
    text = f"Rename the function {old} to {new} in all files of src, and the file that defines it to {target}."
    commands = (
        f"grep -rn '\\b{old}\\b' src",
        f"sed -i 's/\\b{old}\\b/{new}/g' src/*.py",
        f"mv $(grep -l 'def {new}(' src/*.py) {target}",
    )
    return _changed(f"function {old} {new}", text, project, commands, files)


def _largest(rng: np.random.Generator) -> Job:
    (key,) = draw_words(rng, WORDS, 1)
    while True:
        project = draw_project(rng, settings=[key])
        values = {
            path: int(found[1])
            for path in project.confs
            if (found := re.search(rf"^{key} = (\d+)$", project.files[path], re.MULTILINE))
        }
        if len(values) > 1 and len(set(values.values())) == len(values):
            break
    best = max(values, key=lambda path: values[path])
    lines = len(project.files[best].splitlines())
    files = dict(project.files)
    for path in values:
        if path != best:
            files[path] = re.sub(rf"^{key} = \d+$", f"{key} = {values[best]}", files[path], flags=re.MULTILINE)
    text = (
        f"Set {key} to its largest value among the files of conf, in each of them that has it. Then answer: how many "
        "lines has the file that had it first?"
    )
    commands = (
        f"grep -H '^{key} = ' conf/* | sort -t= -k2 -nr",
        f"wc -l < {best}",
        f"sed -i 's/^{key} = .*/{key} = {values[best]}/' conf/*",
    )
    job = _changed(f"largest {key}", text, project, commands, files)
    return Job(job.identity, job.text, job.files, job.tree, job.commands, answer=str(lines))


LEVELS: dict[str, tuple[Maker, ...]] = {
    "easy": (_where_defined, _count_lines, _move_one, _set_one),
    "medium": (_rename_setting, _file_away, _clear_logs, _add_missing),
    "hard": (_fix_call, _index, _rename_function, _largest),
}
"""What makes the jobs of a level."""
