"""The wheel and the sdist hold every file of the seven folders, and what is installed from them works."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ["front", "envs", "agents", "credit", "trainer", "sandboxes", "replay"]
LINKS = ROOT / ".dev" / "accredit"


def project_files() -> list[Path]:
    """Files of the project, relative to its root: known to git, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout, so there is no list of the project's files")
    files = [Path(name) for name in listed.stdout.split("\0") if name]
    return [path for path in files if (ROOT / path).is_symlink() or (ROOT / path).is_file()]


def installed_path(path: Path) -> str:
    """Where a file of the seven folders lies inside the installed package."""
    return Path("accredit", *(path.parts[1:] if path.parts[0] == "front" else path.parts)).as_posix()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, built from the sdist, and the sdist, built from a copy of the project."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for path in project_files():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, copy / path, follow_symlinks=False)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy)]
    build = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=out)
    assert build.returncode == 0, build.stdout[-3000:] + build.stderr[-3000:]
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def test_wheel_holds_every_file_of_the_seven_folders(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        held = set(wheel.namelist())
    missing = [str(path) for path in project_files() if path.parts[0] in FOLDERS and installed_path(path) not in held]
    assert not missing, f"not in the wheel (an ending missing from package-data in pyproject.toml?): {missing}"


def test_wheel_holds_nothing_but_the_package(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"accredit"}


def test_sdist_holds_every_file_of_the_seven_folders(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = [
        path for path in project_files() if path.parts[0] in FOLDERS or path.name in ("pyproject.toml", "LICENSE")
    ]
    missing = [str(path) for path in wanted if path.as_posix() not in held]
    assert not missing, f"not in the sdist: {missing}"


def test_installed_wheel_imports_from_its_own_folder(built: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "target"
    with zipfile.ZipFile(built[0]) as wheel:
        wheel.extractall(target)
        entry_points = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        assert "accredit = accredit.cli:main" in wheel.read(entry_points).decode()
    environment = os.environ | {"PYTHONPATH": str(target)}
    code = (
        "import accredit, accredit.agents, accredit.credit, accredit.envs, accredit.replay, accredit.sandboxes, sys\n"
        f"rooms = [m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'accredit']\n"
        f"assert all(f.startswith({str(target)!r}) for f in rooms), rooms\n"
        "assert accredit.ToolEnv is accredit.envs.ToolEnv\n"
    )
    for command in (["-c", code], ["-m", "accredit", "--version"], ["-m", "accredit", "--help"]):
        answer = subprocess.run(
            [sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert answer.returncode == 0, answer.stderr


def test_links_for_type_checkers_are_complete() -> None:
    wanted = {folder: f"../../{folder}" for folder in FOLDERS if folder != "front"}
    for path in project_files():
        if path.parts[0] == "front":
            wanted[path.parts[1]] = f"../../front/{path.parts[1]}"
    have = {link.name: os.readlink(link) for link in LINKS.iterdir()}
    commands = [f"ln -sfn {target} .dev/accredit/{name}" for name, target in wanted.items() if have.get(name) != target]
    commands += [f"rm .dev/accredit/{name}" for name in have if name not in wanted]
    assert not commands, "run:\n" + "\n".join(commands)
