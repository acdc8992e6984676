import pytest

from accredit.credit import Group
from accredit.credit.functions import credit_function
from accredit.trainer.config import ConfigError, SFTConfig, TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.setup import _with_whole_paths

GOOD = "env: Shop-v0\nenv_options: {level: easy}\noptimizer: {lr: 1e-4}\n"


def written(tmp_path, text, name="run.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_file_with_overrides_becomes_a_config(tmp_path):
    config = load_config(
        TrainConfig,
        written(tmp_path, GOOD),
        ["steps=7", "loss.kl=0.01", "rollout.turns=null", "env_options.level=hard"],
    )
    assert (config.steps, config.loss.kl, config.rollout.turns) == (7, 0.01, None)
    assert config.env_options == {"level": "hard"}
    assert config.optimizer.lr == 1e-4


def test_toml_says_the_same_as_yaml(tmp_path):
    toml = 'env = "Shop-v0"\n[env_options]\nlevel = "easy"\n[optimizer]\nlr = 1e-4\n'
    assert load_config(TrainConfig, written(tmp_path, toml, "run.toml")) == load_config(
        TrainConfig, written(tmp_path, GOOD)
    )


def test_all_mistakes_are_told_at_once_with_the_nearest_key(tmp_path):
    text = "env: Shop-v0\nrollout: {group: 4}\noptimizer: {lr: -1, warmup: 3}\nstep: 5\n"
    with pytest.raises(ConfigError) as caught:
        load_config(TrainConfig, written(tmp_path, text), ["loss.kind=ppo", "nonsense"])
    told = str(caught.value)
    assert told.startswith("6 mistakes in ")
    assert "rollout.group: unknown key; did you mean 'groups'?" in told
    assert "optimizer.warmup: unknown key; did you mean 'warmup_steps'?" in told
    assert "step: unknown key; did you mean 'steps'?" in told
    assert "optimizer.lr: Input should be greater than 0 (found -1)" in told
    assert "loss.kind: Input should be 'clipped' or 'unclipped' (found 'ppo')" in told
    assert "override 'nonsense': expected key=value" in told
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("steps: 3\n", "env: Field required"),
        ("- a\n- b\n", "holds a list, expected keys and values"),
        ("env: [Shop\n", "is not valid YAML"),
        (GOOD + "rollout: {decision_tokens: 64, episode_tokens: 64}\n", "must be smaller than rollout.episode_tokens"),
    ],
)
def test_a_file_that_cannot_be_run_says_why(tmp_path, text, told):
    with pytest.raises(ConfigError, match=told):
        load_config(TrainConfig, written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*nothing.yaml: No such file"):
        load_config(TrainConfig, tmp_path / "nothing.yaml")


def test_an_override_below_a_value_is_a_mistake(tmp_path):
    with pytest.raises(ConfigError, match="'steps' is a value, not a table"):
        load_config(TrainConfig, written(tmp_path, GOOD + "steps: 3\n"), ["steps.more=1"])


def test_a_resolved_config_reads_back_as_itself(tmp_path):
    import yaml

    config = load_config(SFTConfig, written(tmp_path, GOOD))
    again = written(tmp_path, yaml.safe_dump(config.model_dump(mode="json")), "again.yaml")
    assert load_config(SFTConfig, again) == config


def credit_of(tmp_path, monkeypatch, text, module=None):
    monkeypatch.chdir(tmp_path)
    if module is not None:
        name, source = module
        (tmp_path / f"{name}.py").write_text(source)
    return load_config(TrainConfig, written(tmp_path, f"{GOOD}credit: {text}\n")).credit


def test_a_credit_function_of_ones_own_is_named_by_its_dotted_path(tmp_path, monkeypatch):
    source = "def last_token(group, *, weight=1.0, charge_scale=1.0):\n    return (weight, charge_scale)\n"
    text = "{function: 'credit_of_mine:last_token', options: {weight: 2.0}, charge_scale: 0.5}"
    credit = credit_of(tmp_path, monkeypatch, text, ("credit_of_mine", source))
    assert credit.function == "credit_of_mine:last_token"
    assert credit_function(credit.function, charge_scale=0.5, **credit.options)(Group(())) == (2.0, 0.5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{function: anchord}", "credit: Value error, there is no credit function 'anchord': did you mean 'anchored'"),
        ("{options: {kapa: 1}}", "credit function 'anchored' has no option 'kapa': did you mean 'kappa'"),
        ("{function: gae, options: {values: states}}", "A configuration file cannot hold a function"),
        ("{function: exact}", "credit function 'exact' needs values"),
        ("{function: 'no_such_place.credit:mine'}", "there is no module 'no_such_place' on Python's path or in"),
        ("{function: 'json:dumpp'}", "json has no 'dumpp': did you mean 'dump'?"),
        ("{function: 'math:pi'}", "credit function 'math:pi': pi is a float, expected a class or a function"),
        ("{function: 'textwrap:dedent', options: {n: 1}}", "'textwrap:dedent' has no option 'n': expected one of text"),
        ("{function: 'textwrap:dedent', charge_scale_end: 0.5}", "takes no charge_scale, so charges cannot be scaled"),
        ("{function: 'not a path:x'}", "credit function 'not a path:x': expected package.module:name"),
        ("{options: {charge_scale: 2.0}}", "set credit.charge_scale instead"),
    ],
)
def test_a_credit_function_that_cannot_be_made_is_told_before_the_run(tmp_path, monkeypatch, text, told):
    with pytest.raises(ConfigError) as caught:
        credit_of(tmp_path, monkeypatch, text)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("rollout.engine=openai", "openai servers are for evaluation"),
        ("rollout.vllm={engine_args: {logprobs_mode: processed_logprobs}}", "logprobs_mode: log-probabilities are"),
        ("rollout.vllm={engine_args: {generation_config: auto}}", "would make another policy"),
        ("rollout.vllm={engine_args: {dtype: float16}}", "set model.dtype instead"),
        ("rollout.vllm={servers: [http://a], replicas: 2}", "leave out replicas"),
    ],
)
def test_an_engine_that_would_not_sample_from_the_policy_is_refused(tmp_path, override, why):
    with pytest.raises(ConfigError, match=why):
        load_config(TrainConfig, written(tmp_path, GOOD), [override])


def test_a_worker_elsewhere_is_told_of_the_same_files(tmp_path, monkeypatch):
    for folder in (tmp_path, tmp_path / "home"):
        folder.mkdir(exist_ok=True)
        (folder / "mine.py").touch()
    (tmp_path / "base").mkdir()  # 'base' is still the model that ships
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for env, model, expected_env, expected_model in [
        ("mine.py:Mine", "base", f"{tmp_path}/mine.py:Mine", "base"),
        ("mine.py", "checkpoint", f"{tmp_path}/mine.py", f"{tmp_path}/checkpoint"),
        ("~/mine.py:Mine", "base", f"{tmp_path}/home/mine.py:Mine", "base"),
        ("Shop-v0", "base", "Shop-v0", "base"),
    ]:
        told = _with_whole_paths(load_config(TrainConfig, None, [f"env={env}", f"model.path={model}"]))
        assert (told.env, told.model.path) == (expected_env, expected_model)
