"""Names: registering, making, listing, and loading from files and modules."""

import subprocess
import sys
import textwrap

import gymnasium
import pytest

from accredit.envs import EnvError, Task, ToolEnv, load_env, make, register, registered, spec

SOURCE = '''
from accredit.envs import Task, ToolEnv, register, tool

class Toy{n}(ToolEnv):
    """A toy."""
    def tasks(self, rng):
        return [Task("go")]
    def reward(self):
        return 1.0

register("Toy{n}-v0", Toy{n}, max_turns=3)
'''


class Toy(ToolEnv):
    """A toy of this test.

    It does nothing.
    """

    def tasks(self, rng):
        return [Task("go")]

    def reward(self) -> float:
        return 1.0


def test_a_registered_class_is_made_by_either_name():
    register("RegToy-v0", Toy, max_turns=3)
    assert make("RegToy-v0").max_turns == make("accredit/RegToy-v0").max_turns == 3
    assert make("RegToy-v0", max_turns=4).max_turns == 4
    env = gymnasium.make("accredit/RegToy-v0")
    assert type(env) is Toy and env.spec is not None and env.spec.id == "accredit/RegToy-v0"
    assert spec("RegToy-v0").kwargs == {"max_turns": 3}


def test_the_list_has_descriptions():
    register("ListToy-v0", Toy)
    (found,) = [entry for entry in registered() if entry.id == "accredit/ListToy-v0"]
    assert found.description == "A toy of this test."
    assert found.entry_point.endswith("test_registry:Toy")
    assert [entry.id for entry in registered()] == sorted(entry.id for entry in registered())


def test_every_environment_of_the_catalogue_is_listed_with_a_description():
    assert "accredit/Shop-v0" in [entry.id for entry in registered()]
    assert all(entry.description for entry in registered() if "catalogue" in entry.entry_point)


def test_an_unknown_name_gets_the_nearest():
    register("NearToy-v0", Toy)
    with pytest.raises(EnvError, match=r"unknown environment 'NaerToy-v0', did you mean .*NearToy-v0"):
        make("NaerToy-v0")


@pytest.mark.parametrize("name", ["Toy", "toy v0", "Toy-v", "-v0", "accredit/Toy"])
def test_a_malformed_name_is_refused(name):
    with pytest.raises(EnvError, match="expected the form Name-v0"):
        register(name, Toy)


def test_a_name_is_taken_once_but_the_same_class_may_come_again():
    register("OnceToy-v0", Toy)
    register("OnceToy-v0", Toy)

    class Other(Toy):
        pass

    with pytest.raises(EnvError, match=r"already registered for .*Toy: take another name or a higher version"):
        register("OnceToy-v0", Other)


def test_a_class_that_cannot_work_is_refused_at_registration():
    class NoReward(ToolEnv):
        def tasks(self, rng):
            return [Task("go")]

    class NoTasks(ToolEnv):
        def reward(self) -> float:
            return 0.0

    with pytest.raises(EnvError, match="NoReward has no reward"):
        register("NoReward-v0", NoReward)
    with pytest.raises(EnvError, match="NoTasks has no tasks"):
        register("NoTasks-v0", NoTasks)
    with pytest.raises(EnvError, match=r"write `class int\(ToolEnv\)`"):
        register("Int-v0", int)  # type: ignore[arg-type]


def test_a_wrong_setting_is_told_with_the_environments_name():
    register("SettingToy-v0", Toy)
    with pytest.raises(EnvError, match=r"accredit/SettingToy-v0 cannot be made with .*'turns'"):
        make("SettingToy-v0", turns=3)


def test_what_makes_no_toolenv_is_refused():
    register("Wrong-v0", lambda: gymnasium.make("CartPole-v1"))  # type: ignore[arg-type,return-value]
    with pytest.raises(EnvError, match="expected a ToolEnv"):
        make("Wrong-v0")


@pytest.fixture
def toy_file(tmp_path, request):
    number = abs(hash(request.node.name)) % 10**8
    path = tmp_path / "toys.py"
    path.write_text(SOURCE.format(n=number))
    return path, f"Toy{number}"


def test_a_file_gives_its_class_its_names_or_its_only_environment(toy_file):
    path, name = toy_file
    by_class = load_env(f"{path}:{name}", max_turns=2)
    assert (type(by_class).__name__, by_class.max_turns) == (name, 2)
    assert load_env(f"{path}:{name}-v0").max_turns == 3
    assert type(load_env(str(path))) is type(by_class)
    assert load_env(f"{name}-v0").max_turns == 3
    assert by_class.spec is not None and by_class.spec.id == name


def test_a_module_gives_its_class():
    assert type(load_env("accredit.envs.catalogue.shop:Shop")).__name__ == "Shop"


def test_errors_of_loading_say_what_is_near(toy_file, tmp_path):
    path, name = toy_file
    for reference, said in [
        (f"{path}:{name[:-1]}", f"has no '{name[:-1]}', did you mean {name}?"),
        (f"{path}:Task", "Task is a type, expected a ToolEnv class"),
        (f"{path.with_name('toy.py')}:X", "there is no file"),
        (f"{path.with_name('toy.py')}:X", "toys.py"),
        ("no_such_module_here:X", "cannot import no_such_module_here"),
        ("Shpo-v0", "did you mean Shop-v0"),
        ("./nowhere/at/all.py:X", "looked in"),
    ]:
        with pytest.raises(EnvError) as raised:
            load_env(reference)
        assert said in str(raised.value)


def test_a_file_that_fails_names_its_line(tmp_path):
    path = tmp_path / "failing.py"
    path.write_text("import math\n\nmath.nothing\n")
    with pytest.raises(EnvError, match=r"failing\.py, line 3, failed: AttributeError"):
        load_env(f"{path}:X")


def test_a_file_with_two_environments_must_be_told_which(tmp_path):
    path = tmp_path / "two.py"
    path.write_text("from accredit.envs import ToolEnv\nclass A(ToolEnv): ...\nclass B(ToolEnv): ...\n")
    with pytest.raises(EnvError, match=r"defines 2 environments \(A, B\): name one as"):
        load_env(str(path))


def fresh(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def test_importing_the_room_imports_no_torch_and_registers_the_catalogue():
    code = """
    import sys, accredit.envs
    heavy = {"torch", "transformers", "renderers", "openai", "pydantic", "pyarrow", "tokenizers", "httpx"}
    print(sorted(heavy & set(sys.modules)))
    import gymnasium
    print("accredit/Shop-v0" in gymnasium.registry)
    """
    assert fresh(code).splitlines() == ["[]", "True"]


def test_every_public_name_can_be_had_and_unknown_ones_cannot():
    import accredit.envs

    for name in accredit.envs.__all__:
        assert getattr(accredit.envs, name) is not None
    assert set(accredit.envs.__all__) <= set(dir(accredit.envs))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = accredit.envs.Nothing
