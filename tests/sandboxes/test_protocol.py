"""Limits, isolation reports and the package's lazy names."""

import subprocess
import sys

import pytest

import accredit.sandboxes
from accredit.sandboxes import IsolationReport, Layer, Level, Limits
from accredit.sandboxes.protocol import LAYERS


def report(*on: str) -> IsolationReport:
    return IsolationReport("embedded", tuple(Layer(n, n in on, "" if n in on else "why not") for n in LAYERS))


@pytest.mark.parametrize(
    ("on", "level"),
    [
        ((), Level.L1),
        (("rlimits", "landlock"), Level.L1),
        (("rlimits", "namespaces"), Level.L1),
        (("rlimits", "landlock", "seccomp"), Level.L2),
        (("rlimits", "seccomp", "namespaces"), Level.L3),
        (("rlimits", "seccomp", "namespaces", "landlock", "uid_drop"), Level.L3),
        (LAYERS, Level.L4),
    ],
)
def test_level_follows_the_layers_found(on: tuple[str, ...], level: Level) -> None:
    assert report(*on).level is level


def test_description_names_each_layer_and_why_it_is_off() -> None:
    assert report("namespaces", "seccomp").describe() == (
        "embedded L3: namespaces yes, landlock NO (why not), seccomp yes, "
        "rlimits NO (why not), uid_drop NO (why not), cgroup NO (why not)"
    )


def test_isolation_id_tells_sets_of_layers_apart() -> None:
    assert report("seccomp").isolation_id != report("landlock").isolation_id
    assert report(*LAYERS).isolation_id.startswith("embedded-L4-")


@pytest.mark.parametrize("wrong", [{"wall_s": 0}, {"cpu_s": -1}, {"memory_mb": 8}, {"pids": 0}, {"output_bytes": 0}])
def test_limits_refuse_what_no_program_could_run_under(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Limits(**wrong)


def test_every_public_name_resolves() -> None:
    for name in accredit.sandboxes.__all__:
        assert getattr(accredit.sandboxes, name) is not None


def test_importing_the_package_loads_no_backend() -> None:
    code = "import sys, accredit.sandboxes; print([m for m in sys.modules if m.startswith('accredit.sandboxes.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(accredit.sandboxes, "no_such_name")  # noqa: B009
