import dataclasses
import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from accredit.credit import CallStatus, SpanError, SpanKind, StopReason
from accredit.envs.chatml import ChatMLRenderer
from accredit.envs.core import ToolEnv
from accredit.envs.errors import EnvError, InfrastructureError, ToolError
from accredit.envs.package import PackageRenderer
from accredit.envs.recorder import Decision, RecordCredit
from accredit.envs.rendering import Renderer
from accredit.envs.task import Task
from accredit.envs.tinytokenizers import byte_level
from accredit.envs.tokenspace import TokenSpace
from accredit.envs.toolprompt import call_text
from accredit.envs.tools import tool


@dataclasses.dataclass
class Purse:
    coins: int = 10


class Shop(ToolEnv):
    system = "A shop."
    max_turns = 4

    def tasks(self, rng):
        return [Task("Spend three coins.", answer=7, id="spend")]

    def setup(self):
        self.state = Purse()

    @tool
    def pay(self, coins: int) -> int:
        """Pay coins."""
        if coins > 99:
            raise InfrastructureError("the bank is closed")
        if coins > self.state.coins:
            raise ToolError("not enough", argument="coins")
        self.state.coins -= coins
        return self.state.coins

    def reward(self):
        return float(self.state.coins == self.task.answer)


class Talk(Shop):
    def reply(self):
        if self.answer == "bug":
            raise ValueError("broken reply")
        if self.answer == "down":
            raise InfrastructureError("no user")
        return "Go on." if self.answer != "bye" else None


RENDERER = ChatMLRenderer(byte_level(), "signature")
PAY = call_text("pay", {"coins": 3})


def begun(env=Shop, renderer: Renderer = RENDERER, **kwargs):
    record = RecordCredit(env(), renderer)
    record.reset(seed=3, **kwargs)
    return record


def play(record, *texts):
    return [record.step(record.renderer.encode(text)) for text in texts][-1]


def text_of(trajectory, start, end):
    return b"".join(RENDERER.token_bytes(trajectory.token_ids[start:end])).decode()


def kinds(trajectory):
    return [(span.kind.value, span.turn, text_of(trajectory, span.start, span.end)) for span in trajectory.spans]


def test_an_episode_is_recorded_span_by_span():
    record = begun(episode_id="ep-1", group="g", seeds={"sampler": 5})
    play(record, PAY, "done")
    trajectory = record.trajectory
    assert trajectory is not None
    assert kinds(trajectory)[-5:] == [
        ("decision", 0, PAY + "<|im_end|>"),
        ("scaffold", 0, "\n<|im_start|>tool\n"),
        ("feedback", 0, "7"),
        ("scaffold", 0, "<|im_end|>\n<|im_start|>assistant\n"),
        ("decision", 1, "done<|im_end|>"),
    ]
    assert (trajectory.outcome, trajectory.stop) == (1.0, StopReason.DONE)
    assert (trajectory.env_id, trajectory.task_id, trajectory.episode_id, trajectory.group) == (
        "Shop",
        "spend",
        "ep-1",
        "g",
    )
    assert trajectory.seeds == {"environment": 3, "sampler": 5}
    assert trajectory.turn_seconds is not None
    assert np.all(np.diff(trajectory.turn_seconds.ravel()) >= 0)
    keys = trajectory.state_keys
    assert len(set(keys[:2])) == 2
    assert None not in keys


def test_options_are_recorded_where_they_are_plain_data():
    record = RecordCredit(Shop(), RENDERER)
    for options, kept in (
        (None, {}),
        ({"luck": 4}, {}),
        ({"split": "heldout", "luck": 4}, {"split": "heldout"}),
        ({"task": Task("buy", answer=1)}, None),
    ):
        record.reset(seed=3, options=options)
        assert record.finish(StopReason.CANCELLED).options == kept


def test_observations_and_actions_are_the_trajectory():
    record = RecordCredit(Shop(), RENDERER)
    prompt, _ = record.reset(seed=3)
    seen = list(prompt)
    for text in (PAY, PAY, "done"):
        action = RENDERER.encode(text)
        assert record.context.tolist() == seen
        observation, *_ = record.step(Decision(action, np.full(len(action), -0.5), policy_version=4))
        seen += [*action, *observation]
    assert record.trajectory is not None
    assert record.trajectory.token_ids.tolist() == seen
    assert record.trajectory.policy_versions == (4, 4, 4)
    assert np.nansum(record.trajectory.logprobs) == -0.5 * record.trajectory.credit_mask.sum()


def test_a_sampled_stop_id_is_trained_and_an_appended_one_is_not():
    record = begun()
    stop = RENDERER.encode("")[-1]
    record.step(RENDERER.encode(PAY))
    record.step(RENDERER.encode(PAY)[:-1])
    trajectory = record.finish(StopReason.TOKEN_LIMIT)
    first, second = trajectory.decisions
    assert trajectory.token_ids[first.end - 1] == stop
    assert trajectory.token_ids[second.end - 1] != stop
    assert trajectory.token_ids[second.end] == stop
    assert not trajectory.credit_mask[second.end]


def test_ids_after_a_stop_id_are_recorded_but_say_nothing():
    record = begun()
    ids = [*RENDERER.encode("done"), *RENDERER.encode(PAY)[:-1]]
    _, reward, terminated, *_ = record.step(ids)
    assert (reward, terminated) == (0.0, True)
    assert record.tool_env.answer == "done"
    assert record.trajectory is not None
    assert len(record.trajectory.decisions[0]) == len(ids)


def test_calls_carry_ranges_status_and_times():
    record = begun()
    play(record, f"I pay. {PAY}", "done")
    assert record.trajectory is not None
    [call] = record.trajectory.calls
    assert (call.turn, call.name, call.status, call.result) == (0, "pay", CallStatus.OK, "7")
    assert text_of(record.trajectory, call.start, call.end) == PAY
    assert call.name_range is not None
    assert '"pay"' in text_of(record.trajectory, *call.name_range)
    assert "3" in text_of(record.trajectory, *call.argument_ranges["$.coins"])
    assert call.started_s is not None and call.duration_s is not None
    assert call.arguments == {"coins": 3}


def test_repairs_are_noted_and_the_call_runs():
    record = begun()
    play(record, '<tool_call>{"name": "pay", "arguments": "{\\"coins\\": 3}"}</tool_call>', "done")
    assert record.trajectory is not None
    [call] = record.trajectory.calls
    assert (call.status, call.detail["repairs"]) == (CallStatus.REPAIRED, ["double_encoded $"])
    assert "3" in text_of(record.trajectory, *call.argument_ranges["$.coins"])


def test_the_last_result_is_kept_without_a_header_for_a_decision_that_never_comes():
    record = begun()
    observation, _, _, truncated, _ = play(record, PAY, PAY, PAY, PAY)
    assert truncated
    assert record.trajectory is not None
    assert (record.trajectory.stop, record.trajectory.outcome) == (StopReason.TURN_LIMIT, 0.0)
    assert kinds(record.trajectory)[-1][0] == "feedback"
    assert text_of(record.trajectory, len(record.trajectory) - len(observation), len(record.trajectory)).startswith(
        "\n"
    )


@pytest.mark.parametrize(
    ("stop", "outcome"),
    [
        (StopReason.TURN_LIMIT, 1.0),
        (StopReason.TOKEN_LIMIT, 1.0),
        (StopReason.CALL_LIMIT, 1.0),
        (StopReason.TIME_LIMIT, 1.0),
        (StopReason.INFRASTRUCTURE, None),
        (StopReason.ENVIRONMENT_ERROR, None),
        (StopReason.POLICY_ERROR, None),
        (StopReason.CANCELLED, None),
    ],
)
def test_limits_are_scored_and_failures_are_not(stop, outcome):
    record = begun()
    play(record, PAY)
    trajectory = record.finish(stop, error="why")
    assert (trajectory.outcome, trajectory.stop, trajectory.error) == (outcome, stop, "why")
    assert record.finish(StopReason.CANCELLED) is trajectory is record.trajectory


def test_an_episode_may_end_before_the_first_decision():
    trajectory = begun().finish(StopReason.TIME_LIMIT)
    assert (trajectory.turns, trajectory.outcome) == (0, 0.0)


def test_a_failed_machine_leaves_the_episode_unscored_and_uncharged():
    record = begun()
    _, reward, terminated, truncated, info = play(record, call_text("pay", {"coins": 100}))
    assert (reward, terminated, truncated, info["unscored"]) == (0.0, False, True, True)
    assert record.trajectory is not None
    assert (record.trajectory.outcome, record.trajectory.stop) == (None, StopReason.INFRASTRUCTURE)
    assert record.trajectory.charges == ()
    assert record.trajectory.calls[0].status is CallStatus.INFRASTRUCTURE


def test_a_hook_that_loses_its_machine_ends_the_episode_as_data():
    record = begun(Talk)
    _, _, _, truncated, info = play(record, "down")
    assert truncated and info["unscored"]
    assert record.trajectory is not None
    assert (record.trajectory.outcome, record.trajectory.stop) == (None, StopReason.INFRASTRUCTURE)


def test_a_broken_environment_raises_and_leaves_an_unscored_trajectory():
    record = begun(Talk)
    with pytest.raises(EnvError, match="reply"):
        play(record, "bug")
    assert record.trajectory is not None
    assert (record.trajectory.outcome, record.trajectory.stop) == (None, StopReason.ENVIRONMENT_ERROR)


def test_a_reward_that_fails_at_a_limit_leaves_the_episode_unscored():
    record = begun()
    record.tool_env.reward = lambda: 1 / 0  # type: ignore[method-assign]
    trajectory = record.finish(StopReason.TOKEN_LIMIT)
    assert (trajectory.outcome, trajectory.stop) == (None, StopReason.ENVIRONMENT_ERROR)


def test_a_decision_without_ids_is_a_turn():
    record = begun()
    _, _, terminated, *_ = record.step(np.zeros(0, dtype=np.int32))
    assert terminated
    assert record.trajectory is not None
    assert (record.trajectory.turns, record.trajectory.decisions) == (1, ())


def test_ids_and_log_probabilities_must_fit():
    record = begun()
    with pytest.raises(SpanError, match="2 sampled ids but 1 log-probabilities"):
        record.step(Decision([1, 2], [-0.1]))
    assert record.finish(StopReason.POLICY_ERROR).turns == 0


def test_using_it_out_of_order_says_what_to_do():
    record = RecordCredit(Shop(), RENDERER)
    with pytest.raises(EnvError, match=r"call reset\(\) first"):
        record.step([1])
    record.reset(seed=1)
    record.finish(StopReason.CANCELLED)
    with pytest.raises(EnvError, match=r"it has ended, call reset\(\) for another"):
        record.step([1])
    with pytest.raises(EnvError, match="make the two agree"):
        shop = Shop()
        shop.call_format = "react"
        RecordCredit(shop, RENDERER)


def test_one_renderer_serves_many_episodes_that_share_nothing():
    first, second = begun(), begun()
    play(first, PAY)
    play(second, "done")
    play(first, "done")
    again = begun()
    play(again, PAY, "done")
    assert first.trajectory is not None and again.trajectory is not None
    assert first.trajectory.token_ids.tolist() == again.trajectory.token_ids.tolist()
    assert first.trajectory.spans == again.trajectory.spans


def test_a_prefix_that_breaks_starts_a_segment_that_says_why():
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_level(),
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>", "<|endoftext|>"],
    )
    record = begun(Talk, PackageRenderer(tokenizer, "qwen3"))
    before = len(record.context)
    _, _, _, _, info = play(record, PAY)
    assert "segment" not in info
    observation, _, _, _, info = play(record, "hm")
    assert "user messages" in info["segment"]
    assert record.context.tolist() == observation.tolist()
    play(record, "bye")
    trajectory = record.trajectory
    assert trajectory is not None
    assert [segment.reason for segment in trajectory.segments] == ["start", info["segment"]]
    assert trajectory.segments[1].start > before
    assert [span.kind for span in trajectory.spans].count(SpanKind.DECISION) == 3
    fresh = trajectory.token_ids[trajectory.segments[1].start :]
    assert trajectory.credit_mask.sum() == sum(len(RENDERER.encode(text)) for text in (PAY, "hm", "bye"))
    assert not trajectory.credit_mask[trajectory.segments[1].start :][: len(observation)].any()
    assert len(fresh) == len(observation) + len(RENDERER.encode("bye"))


def test_gymnasiums_own_checker_accepts_it():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check_env(RecordCredit(Shop(), RENDERER), skip_render_check=True)


def test_the_token_space_holds_ids_of_the_vocabulary_only():
    space = TokenSpace(10, seed=1)
    assert space.contains(np.array([0, 9], dtype=np.int32))
    assert space.contains(Decision([1, 2]))
    assert space.contains([])
    assert not space.contains(np.array([10]))
    assert not space.contains(np.array([0.5]))
    assert not space.contains("1")
    samples = [space.sample() for _ in range(9)]
    assert all(space.contains(sample) for sample in samples)
    back = space.from_jsonable(space.to_jsonable(samples))
    assert [b.tolist() for b in back] == [s.tolist() for s in samples]
    assert space == TokenSpace(10) != TokenSpace(11)
