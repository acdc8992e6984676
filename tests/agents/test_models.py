import numpy as np
import pytest
import torch

from accredit.agents.human import HumanPolicy
from accredit.agents.models import ModelError, load_model, save_model
from accredit.agents.rollout import Episode, live
from accredit.agents.scripted import ScriptedPolicy
from accredit.envs import load_env
from accredit.envs.chatml import ChatMLRenderer


@pytest.fixture(scope="module")
def base():
    return load_model("base")


def test_the_base_policy_ships_with_the_package_and_is_near_a_million_parameters(base):
    assert 0.8e6 < sum(weight.numel() for weight in base.model.parameters()) < 1.3e6
    assert isinstance(base.renderer, ChatMLRenderer)
    assert base.renderer.tools_format == "signature"
    assert base.model.config.architectures == ["LlamaForCausalLM"]


def test_the_base_policys_markers_are_single_tokens_and_so_are_digits(base):
    for text in ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"):
        assert len(base.tokenizer(text)["input_ids"]) == 1
    assert len(base.tokenizer("2026")["input_ids"]) == 4


def test_a_saved_model_loads_as_it_was(base, tmp_path):
    save_model(base, tmp_path / "copy")
    again = load_model(str(tmp_path / "copy"))
    assert isinstance(again.renderer, ChatMLRenderer)
    assert again.renderer.tools_format == "signature"
    for name, weight in base.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name])


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ModelError, match="a folder without it"):
        load_model(str(tmp_path))


def test_smollm2_from_its_wheel_samples_with_logprobs_of_its_own():
    try:
        smollm2 = load_model("smollm2")
    except ModelError as error:
        pytest.skip(str(error))
    ids = np.array(smollm2.tokenizer("The capital of France is")["input_ids"], dtype=np.int32)
    with torch.no_grad():
        likeliest = smollm2.model(torch.tensor(ids)[None].long()).logits[0, -1].argmax()
    assert smollm2.tokenizer.decode(likeliest).strip() == "Paris"
    assert isinstance(smollm2.renderer, ChatMLRenderer)
    assert smollm2.renderer.tools_format == "json"


def test_a_person_can_be_the_policy(base):
    shown, typed = [], iter(['<tool_call>{"name": "calc", "arguments": {"expression": "1 + 1"}}</tool_call>', "2"])
    policy = HumanPolicy(base.renderer, shown.append, lambda: next(typed))
    (lived,) = live([Episode("ep", "g", 1, 1, 1)], policy, lambda: load_env("Arithmetic-v0"), base.renderer)
    assert lived.turns == 2
    assert lived.calls[0].result == "2"
    assert "Compute" in shown[0]
    assert "Compute" not in shown[1]
    assert "2" in shown[1]


def test_a_script_that_ends_early_ends_its_episode(base):
    policy = ScriptedPolicy(base.renderer, lambda env: iter(()))
    (lived,) = live([Episode("ep", "g", 1, 1, 1)], policy, lambda: load_env("Arithmetic-v0"), base.renderer)
    assert lived.turns == 1
    assert lived.reward == 0
