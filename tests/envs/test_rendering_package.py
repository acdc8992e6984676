import pytest

from accredit.credit import SpanKind
from accredit.envs.calls import parse_calls
from accredit.envs.errors import RenderError
from accredit.envs.messages import Message, ToolSchema
from accredit.envs.package import PackageRenderer
from accredit.envs.rendering import ContextRenderer, chars_to_tokens, make_renderer
from accredit.envs.tinytokenizers import byte_level

TOOLS = [ToolSchema("price", "Price, never <|im_end|>", {"type": "object", "properties": {"item": {"type": "string"}}})]
TALK = [Message("system", "A shop."), Message("user", "Hi <|im_end|> é")]
CALL = '<tool_call>{"name": "price", "arguments": {"item": "日本"}}</tool_call>'


@pytest.fixture(scope="module")
def tokenizer():
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=byte_level(),
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>", "<|endoftext|>"],
    )


@pytest.fixture(scope="module")
def qwen(tokenizer):
    return PackageRenderer(tokenizer, "qwen3")


def ids_of(pieces):
    return [token for piece in pieces for token in piece.ids]


def shown(qwen, pieces):
    return [(piece.kind, b"".join(qwen.token_bytes(piece.ids)).decode()) for piece in pieces]


def bridged(qwen, decision, new, said=CALL):
    prefix = ids_of(qwen.prompt(TALK, TOOLS))
    return qwen.bridge(prefix, decision, [*TALK, Message("assistant", said)], new, TOOLS)


def test_a_prompt_is_what_the_package_renders(qwen, tokenizer):
    from renderers import Qwen3Renderer

    plain = [Message("system", "A shop."), Message("user", "Hi é")]
    told = [ToolSchema("price", "Price.", dict(TOOLS[0].parameters))]
    function = {"name": "price", "description": "Price.", "parameters": told[0].parameters}
    expected = Qwen3Renderer(tokenizer).render(
        [{"role": m.role, "content": m.content} for m in plain],
        tools=[{"type": "function", "function": function}],  # type: ignore[list-item]
        add_generation_prompt=True,
    )
    assert ids_of(qwen.prompt(plain, told)) == expected.token_ids


def test_special_tokens_in_the_text_of_others_stay_text(qwen):
    stop = byte_level().token_to_id("<|im_end|>")
    pieces = qwen.prompt(TALK, TOOLS)
    assert (SpanKind.PROMPT, "Hi <|im_end|> é") in shown(qwen, pieces)
    assert ids_of(pieces).count(stop) == 2
    answered = bridged(qwen, qwen.encode(CALL), [Message("tool", "</tool_response><|im_end|>")])
    assert (SpanKind.FEEDBACK, "</tool_response><|im_end|>") in shown(qwen, answered.pieces)
    assert ids_of(answered.pieces).count(stop) == 1


def test_consecutive_results_share_a_turn_as_the_template_has_it(qwen):
    bridge = bridged(qwen, qwen.encode(CALL), [Message("tool", "3"), Message("tool", "4")])
    assert bridge.broken is None
    assert shown(qwen, bridge.pieces) == [
        (SpanKind.SCAFFOLD, "\n<|im_start|>user\n<tool_response>\n"),
        (SpanKind.FEEDBACK, "3"),
        (SpanKind.SCAFFOLD, "\n</tool_response>\n<tool_response>\n"),
        (SpanKind.FEEDBACK, "4"),
        (SpanKind.SCAFFOLD, "\n</tool_response><|im_end|>\n<|im_start|>assistant\n"),
    ]


def test_a_close_that_was_not_sampled_is_scaffold(qwen):
    sampled = qwen.encode(CALL)
    [first, *_] = bridged(qwen, sampled[:-1], [Message("tool", "3")]).pieces
    assert first.kind is SpanKind.SCAFFOLD
    assert first.ids[0] == sampled[-1]


@pytest.mark.parametrize(
    ("decision", "new", "reason"),
    [
        (CALL, Message("user", "again"), "cannot extend this prefix with user messages"),
        ("<think>open", Message("tool", "3"), "cannot extend this prefix with tool messages"),
    ],
)
def test_a_prefix_that_cannot_be_extended_is_rendered_anew_and_says_why(qwen, decision, new, reason):
    bridge = bridged(qwen, qwen.encode(decision), [new], decision)
    assert bridge.broken is not None
    assert reason in bridge.broken
    assert shown(qwen, bridge.pieces)[0][1].startswith("<|im_start|>system\nA shop.")
    assert (SpanKind.FEEDBACK, new.content) in shown(qwen, bridge.pieces)
    assert shown(qwen, bridge.pieces)[-1][1].endswith("<|im_start|>assistant\n")


def test_ids_after_the_stop_id_break_the_prefix(qwen):
    assert bridged(qwen, [*qwen.encode(CALL), 7], [Message("tool", "3")]).broken is not None


def test_feedback_alone_extends_a_plain_decision(qwen):
    by_context = bridged(qwen, qwen.encode(CALL), [Message("tool", "3")]).pieces
    assert qwen.feedback([Message("tool", "3")], closed=True) == by_context
    with pytest.raises(RenderError, match=r"call bridge\(\)"):
        qwen.feedback([Message("user", "3")], closed=True)


def test_our_call_ranges_are_the_packages_own(qwen):
    ids = qwen.encode(f"<think>\nhm\n</think>\n\n{CALL}\n<tool_call>{{broken</tool_call>\n{CALL}")
    spans = qwen.token_spans(ids)
    ours = [chars_to_tokens(spans, (call.start, call.end)) for call in parse_calls(qwen.text(ids)).calls]
    assert ours == qwen.call_spans(ids)


def test_names_are_checked_and_the_renderer_knows_its_context(qwen, tokenizer):
    assert isinstance(qwen, ContextRenderer)
    assert isinstance(make_renderer(tokenizer, "qwen3", enable_thinking=False), PackageRenderer)
    with pytest.raises(RenderError, match="whose calls we can read"):
        make_renderer(tokenizer, "glm-4.5")
    with pytest.raises(RenderError, match="needs a tokenizer of transformers"):
        PackageRenderer(byte_level(), "qwen3")
