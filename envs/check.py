"""The checker behind `accredit check ENV`: proves of an environment what training on it relies on.

Every check says what it saw. `passed` is None where a check does not apply (no expert, a list too short to split).
It trains nothing, needs no network, and runs the environment's own code, so check only code that you trust.
"""

import ast
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .check_episodes import EPISODE_CHECKS, digest
from .check_scores import SCORE_CHECKS, expert_scores_full_marks
from .check_tokens import built_in_renderers, masks_hold
from .check_tools import TOOL_CHECKS
from .core import ToolEnv
from .errors import EnvError
from .loading import load_env
from .rendering import Renderer
from .results import error_text
from .subject import Broken, Skipped, Subject

__all__ = ["CheckResult", "check", "check_names", "digest_of"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found. `passed` None: it does not apply, and `evidence` says why."""

    name: str
    passed: bool | None
    evidence: str


def check(
    env: str | type[ToolEnv] | Callable[..., ToolEnv],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    renderers: Mapping[str, Renderer] | None = None,
    only: Sequence[str] = (),
    full_marks: float = 1.0,
    **settings: Any,
) -> list[CheckResult]:
    """Run all checks on an environment.

    Args:
        env: a registered name, "file.py:Class", "module:Class", a class, or a function that makes instances.
        seeds: seeds to try; all of them for the expert's episodes, the first two for the others.
        renderers: renderers by name, added to the two over built-in tokenizers.
        only: names of checks to run, () for all.
        full_marks: the reward of a perfect episode.
        settings: go to the constructor.

    Raises:
        EnvError: the environment cannot be found or made at all, or `only` names no check.

    """
    subject = _subject(env, seeds, settings)
    subject.make().close()
    checks = _checks(full_marks, renderers)
    unknown = [name for name in only if name not in checks]
    if unknown:
        raise EnvError(f"unknown check '{unknown[0]}', expected some of: {', '.join(checks)}")
    return [_run(name, checks[name], subject) for name in (only or checks)]


def check_names() -> tuple[str, ...]:
    """Return the names of all checks, in the order in which they run."""
    return tuple(_checks(1.0, None))


def digest_of(reference: str, settings: str, *seeds: str) -> str:
    """Return the digest of an environment's episodes; another process calls this to compare."""
    subject = _subject(reference, [int(seed) for seed in seeds], ast.literal_eval(settings))
    return digest(subject)


def _checks(full_marks: float, renderers: Mapping[str, Renderer] | None) -> dict[str, Callable[[Subject], str]]:
    def masks(subject: Subject) -> str:
        return masks_hold(subject, {**built_in_renderers(), **(renderers or {})})

    gold = functools.partial(expert_scores_full_marks, full=full_marks)
    return {**EPISODE_CHECKS, **SCORE_CHECKS, "gold": gold, **TOOL_CHECKS, "masks": masks}


def _run(name: str, run: Callable[[Subject], str], subject: Subject) -> CheckResult:
    try:
        return CheckResult(name, True, run(subject))
    except Skipped as skipped:
        return CheckResult(name, None, str(skipped))
    except Broken as broken:
        return CheckResult(name, False, str(broken))
    except Exception as error:
        return CheckResult(name, False, f"the environment raised {error_text(error)}")


def _subject(env: Any, seeds: Sequence[int], settings: Mapping[str, Any]) -> Subject:
    if isinstance(env, str):
        return Subject(env, functools.partial(load_env, env), tuple(seeds), settings, env)
    if not callable(env):
        raise EnvError(f"check: expected a name, a ToolEnv class or a function, found a {type(env).__name__}")
    if isinstance(env, type) and not issubclass(env, ToolEnv):
        raise EnvError(f"check: {env.__name__} is no ToolEnv")
    module, name = getattr(env, "__module__", ""), getattr(env, "__qualname__", "")
    importable = isinstance(env, type) and module != "__main__" and name.isidentifier()
    return Subject(
        name or repr(env),
        cast(Callable[..., ToolEnv], env),
        tuple(seeds),
        settings,
        f"{module}:{name}" if importable else None,
    )
