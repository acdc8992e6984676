"""The process reward model: labels from rollouts and people, and a tiny Llama that learns what a prefix is worth."""

import json
import shutil

import numpy as np
import pytest
import torch

from accredit.credit import Group, Recorder, StopReason
from accredit.credit.exact import ChainProcess
from accredit.credit.functions import credit_function
from accredit.credit.process import ProcessReward, cut_steps
from accredit.credit.traces import TraceWriter
from accredit.trainer.prm import (
    LabelError,
    ProcessRewardModel,
    fit,
    human_labels,
    state_value_labels,
    stored_groups,
)
from accredit.trainer.prm.model import PRMError

CHAIN = ChainProcess(turns=4, relevant=2, p=0.6, luck=0.05)


def chain_groups(seed, count):
    rng = np.random.default_rng(seed)
    return [CHAIN.sample_group(rng, 8) for _ in range(count)]


def token_bytes(ids):
    return [b"%d " % i for i in ids]


@pytest.fixture(scope="module")
def learnt(make_tiny_llama, tmp_path_factory):
    """A model fitted to stored rollouts of Chain, its losses, and the folder it was saved to."""
    run = tmp_path_factory.mktemp("run")
    writer = TraceWriter(run / "traces")
    for step, group in enumerate(chain_groups(0, 24)):
        named = Group(tuple(_named(t, f"s{step}-m{member}", f"g{step}") for member, t in enumerate(group.trajectories)))
        writer.write(1, [named], [credit_function("anchored")(named)], token_bytes, split="train")
    torch.manual_seed(0)
    model = ProcessRewardModel(make_tiny_llama())
    losses = fit(model, state_value_labels(stored_groups(run)), epochs=8, lr=5e-3, seed=1)
    folder = tmp_path_factory.mktemp("prm")
    model.save(folder)
    return model, losses, folder


def _named(trajectory, episode, group):
    from dataclasses import replace

    return replace(trajectory, episode_id=episode, group=group)


def auc(scores, good):
    """The probability that a good one scores above a bad one."""
    above = scores[good][:, None] - scores[~good][None, :]
    return float((above > 0).mean() + 0.5 * (above == 0).mean())


def test_it_tells_good_steps_from_bad_ones_on_held_out_rollouts(learnt):
    model, losses, _ = learnt
    assert losses[-1] < losses[0] - 0.05  # nats; soft labels leave a floor
    scores, good, exact = [], [], []
    for group in chain_groups(99, 12):
        for trajectory in group.trajectories:
            scores.append(model.score(trajectory, cut_steps(trajectory)))
            actions = CHAIN.actions(trajectory)
            right = [CHAIN.right_action(k) in (None, int(a)) for k, a in enumerate(actions)]
            clean = np.logical_and.accumulate(right)
            good.append(clean)
            seen = [CHAIN.value(k + 1, bool(c)) * (1 - CHAIN.luck) ** (k + 1) for k, c in enumerate(clean)]
            exact.append(seen)  # luck is silent: the model cannot see it
    scores_N, good_N = np.concatenate(scores), np.concatenate(good)
    error = float(np.abs(scores_N - np.concatenate(exact)).mean())
    print(f"AUC {auc(scores_N, good_N):.3f}, mean error of the value {error:.3f}")
    assert auc(scores_N, good_N) > 0.9  # chance is 0.5
    assert error < 0.15


def test_a_saved_model_scores_the_same(learnt):
    model, _, folder = learnt
    again = ProcessRewardModel.load(folder)
    for trajectory in chain_groups(7, 1)[0].trajectories:
        steps = cut_steps(trajectory)
        assert again.score(trajectory, steps).tolist() == model.score(trajectory, steps).tolist()
    with pytest.raises(PRMError, match="holds no process reward model"):
        ProcessRewardModel.load(folder.parent)


@pytest.mark.parametrize(
    ("torn", "message"),
    [("prm.json", "is torn"), ("head.safetensors", "not hold a whole"), ("config.json", "not hold a whole")],
)
def test_a_folder_that_was_half_written_is_named(learnt, tmp_path, torn, message):
    shutil.copytree(learnt[2], tmp_path, dirs_exist_ok=True)
    (tmp_path / torn).write_bytes((tmp_path / torn).read_bytes()[:5])
    with pytest.raises(PRMError, match=message):
        ProcessRewardModel.load(tmp_path)


def test_a_seed_decides_the_losses_of_a_body_with_dropout_too_and_touches_no_other_stream(make_tiny_llama):
    losses = []
    for before in (1, 2):
        torch.manual_seed(0)
        model = ProcessRewardModel(make_tiny_llama())
        model.body.config.attention_dropout = 0.5
        for layer in model.body.layers:
            layer.self_attn.attention_dropout = 0.5
        torch.nn.init.ones_(model.head.weight)
        torch.manual_seed(before)
        expected = torch.rand(1)
        torch.manual_seed(before)
        losses.append(fit(model, state_value_labels(chain_groups(0, 2)), epochs=2, lr=1e-2, seed=1))
        assert torch.rand(1) == expected
    assert losses[0] == losses[1]


def test_its_scores_price_a_group_by_name(learnt):
    model, _, folder = learnt
    group = chain_groups(5, 1)[0]
    by_name = credit_function("accredit.trainer.prm:prm_credit", model=str(folder), charge_scale=0.5)(group)
    by_hand = ProcessReward(
        rules=(), scorers=(model.scorer(),), form="potential", w_process=0.3, wrong_decay=1.0, charge_scale=0.5
    )(group)
    for trajectory, one, other in zip(group.trajectories, by_name, by_hand, strict=True):
        assert one.advantage.total.tolist() == other.advantage.total.tolist()
        assert one.advantage.terms["process"].any()
        assert not one.advantage.total[~trajectory.credit_mask].any()
        assert one.credit.terms["process"].sum() == pytest.approx(0, abs=1e-9)  # a potential pays nothing in all


def test_a_step_is_scored_by_the_tokens_before_its_end_alone(learnt):
    model, _, _ = learnt
    one, other = chain_groups(11, 1)[0].trajectories[:2]
    joined = Recorder()
    joined.prompt(one.token_ids[:1])
    for span in one.decisions[:2]:
        joined.decision(one.token_ids[span.start : span.end], [-1.0])
        joined.feedback(one.token_ids[span.end : span.end + 1])
    joined.segment("the template changed the history")
    joined.prompt(other.token_ids[:1])
    joined.decision(other.token_ids[1:2], [-1.0])
    trajectory = joined.finish(1.0, StopReason.DONE)
    scores = model.score(trajectory, cut_steps(trajectory))
    alone = [model.score(t, cut_steps(t))[:n] for t, n in ((one, 2), (other, 1))]
    assert scores == pytest.approx(np.concatenate(alone), abs=1e-5)  # float32, other padding


def test_a_turn_is_labelled_with_the_mean_reward_of_those_that_reached_its_state():
    def lived(*keys, outcome):
        recorder = Recorder(state_key="s")
        recorder.prompt([0])
        for key in keys:
            recorder.decision([1], [-1.0])
            recorder.state_key(key)
        return recorder.finish(outcome, StopReason.DONE)

    group = Group(
        (
            lived("a", "b", "end", outcome=1.0),
            lived("a", None, "end", outcome=0.0),
            lived("c", "c", "end", outcome=0.5),
            lived("a", outcome=None),
        )
    )
    labels = [each.labels_S for each in state_value_labels([group])]
    np.testing.assert_allclose(labels, [[0.5, 1.0, 1.0], [0.5, np.nan, 0.0], [0.5, 0.5, 0.5]])
    often = [each.labels_S for each in state_value_labels([group], least_visits=2)]
    np.testing.assert_allclose(often, [[0.5, np.nan, 1.0], [0.5, np.nan, 0.0], [np.nan, np.nan, 0.5]])


def test_rewards_outside_0_to_1_are_refused_as_labels():
    recorder = Recorder()
    recorder.prompt([0])
    recorder.decision([1], [-1.0])
    with pytest.raises(LabelError, match=r"labels run from 3 to 3, expected \[0, 1\]"):
        state_value_labels([Group((recorder.finish(3.0, StopReason.DONE),))])


def test_people_label_steps_in_a_file(tmp_path, make_tiny_llama):
    trajectories = [_named(t, f"e{i}", "g") for i, t in enumerate(chain_groups(1, 1)[0].trajectories)]
    path = tmp_path / "labels.jsonl"
    lines = [{"episode_id": "e1", "step": 0, "label": 1}, {"episode_id": "e1", "step": 2, "label": 0.25}]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    (found,) = human_labels(path, trajectories)
    assert found.trajectory is trajectories[1]
    np.testing.assert_array_equal(found.labels_S, [1.0, np.nan, 0.25, np.nan])
    model = ProcessRewardModel(make_tiny_llama())
    fit(model, [found], epochs=12, lr=1e-2)
    scores = model.score(found.trajectory, found.steps)
    assert scores[0] > 0.6 > scores[2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"episode_id": "e9", "step": 0, "label": 1}', "line 1: there is no episode 'e9' among the 8 given"),
        ('{"episode_id": "e1", "step": 4, "label": 1}', "episode 'e1' has steps 0 to 3, found 4"),
        ('{"episode_id": "e1", "step": 0, "label": 2}', r"expected \[0, 1\]"),
        ('{"episode_id": "e1"}', "expected an object with episode_id, step and label"),
        ("nonsense", "line 1: expected an object"),
        ('{"episode_id": ["e1"], "step": 0, "label": 1}', "expected a text"),
        ('{"episode_id": "e1", "step": 1.7, "label": 1}', "a whole number"),
        ('{"episode_id": "e1", "step": Infinity, "label": 1}', "a whole number"),
        ('{"episode_id": "e1", "step": 0, "label": NaN}', "found 'e1', 0 and nan"),
        ('{"episode_id": "e1", "step": 0, "label": "0.5"}', "a number from 0 to 1"),
    ],
)
def test_a_wrong_label_is_explained(tmp_path, line, message):
    trajectories = [_named(t, f"e{i}", "g") for i, t in enumerate(chain_groups(1, 1)[0].trajectories)]
    (tmp_path / "labels.jsonl").write_text(line)
    with pytest.raises(LabelError, match=message):
        human_labels(tmp_path / "labels.jsonl", trajectories)


def test_labels_do_not_fall_on_two_episodes_of_one_id(tmp_path):
    (tmp_path / "labels.jsonl").write_text('{"episode_id": "e1", "step": 0, "label": 1}')
    twice = [_named(t, "e1", "g") for t in chain_groups(1, 1)[0].trajectories[:2]]
    with pytest.raises(LabelError, match="1 episode ids stand for several trajectories, such as 'e1'"):
        human_labels(tmp_path / "labels.jsonl", twice)


def test_nothing_labelled_is_nothing_to_learn_from(make_tiny_llama):
    with pytest.raises(LabelError, match="none of the 0 trajectories has a labelled step"):
        fit(ProcessRewardModel(make_tiny_llama()), [])
