"""Exact bytes and characters of token ids, without ever encoding again.

The bytes of each id are read off the tokenizer's vocabulary (byte-level BPE, or pieces with a space mark and byte
fallback), joined, and decoded; a byte that is no UTF-8 becomes one U+FFFD of its own, so that every byte keeps exactly
one character. Merges, normalizers and templates are not looked at.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tokenizers import Tokenizer

from .errors import RenderError

__all__ = ["Blueprint", "TokenText", "blueprint_of", "byte_letters"]

_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
_LONE_BYTE = re.compile("[\udc80-\udcff]")


class Blueprint(NamedTuple):
    """A tokenizer read once: its JSON form (which must not be changed) and its vocabulary without added tokens."""

    backend: Tokenizer
    config: Mapping[str, Any]
    vocabulary: Mapping[str, int]


def blueprint_of(tokenizer: Any) -> Blueprint:
    """Read a tokenizer; a blueprint is returned as it is.

    Raises:
        RenderError: it is neither one nor a fast tokenizer of transformers.

    """
    if isinstance(tokenizer, Blueprint):
        return tokenizer
    backend = tokenizer if isinstance(tokenizer, Tokenizer) else getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise RenderError(
            f"expected a tokenizers.Tokenizer or a fast tokenizer of transformers, found {type(tokenizer).__name__}: "
            "load it with use_fast=True"
        )
    return Blueprint(backend, json.loads(backend.to_str()), backend.get_vocab(with_added_tokens=False))


def byte_letters() -> dict[int, str]:
    """Return the printable letter that byte-level BPE writes for each byte."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}


class TokenText:
    """Reads ids as bytes, text and character ranges, for one tokenizer and its stop ids."""

    def __init__(self, tokenizer: Any, stop_ids: frozenset[int] = frozenset()) -> None:
        _, config, vocabulary = blueprint_of(tokenizer)
        self.stop_ids = stop_ids
        self.added: dict[int, str] = {token["id"]: token["content"] for token in config["added_tokens"]}
        self.vocab_size = max([*vocabulary.values(), *self.added]) + 1
        pieces = [""] * self.vocab_size
        for piece, at in vocabulary.items():
            pieces[at] = piece
        self._bytes = [*self._table(pieces, config), b""]
        self._widths = np.array([len(part) for part in self._bytes], dtype=np.int64)

    def token_bytes(self, ids: ArrayLike) -> list[bytes]:
        """Return the exact bytes of each id; of a special token its text, of an id without a token none."""
        return [self._bytes[at] for at in self._known(ids).tolist()]

    def text(self, ids: ArrayLike) -> str:
        """Return the text of `ids` up to the first stop id."""
        return self._decode(b"".join(self.token_bytes(self._message(ids))))

    def token_spans(self, ids: ArrayLike) -> list[tuple[int, int]]:
        """Return the half-open character range in `text(ids)` of each id; from the first stop id on, empty ranges.

        Neither starts nor ends ever fall; an id without bytes between two parts of one character counts with it.
        """
        message_T = self._message(ids)
        raw = b"".join([self._bytes[at] for at in message_T.tolist()])
        border_T = np.concatenate(([0], np.cumsum(self._widths[message_T])))
        text = raw.decode("utf-8", "surrogateescape")
        code_C = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        lone_C = (code_C >= 0xDC80) & (code_C <= 0xDCFF)
        width_C = 1 + (code_C >= 0x80) + (code_C >= 0x800) + (code_C >= 0x10000)
        start_C = np.concatenate(([0], np.cumsum(np.where(lone_C, 1, width_C))))
        first_T = np.searchsorted(start_C, border_T[:-1], side="right") - 1
        last_T = np.searchsorted(start_C, border_T[1:], side="left")
        end = (len(text), len(text))
        return [*zip(first_T.tolist(), last_T.tolist(), strict=True), *[end] * (np.asarray(ids).size - message_T.size)]

    def _known(self, ids: ArrayLike) -> NDArray[np.int64]:
        ids_T = np.asarray(ids, dtype=np.int64).reshape(-1)
        return np.where((ids_T >= 0) & (ids_T < self.vocab_size), ids_T, self.vocab_size)

    def _message(self, ids: ArrayLike) -> NDArray[np.int64]:
        ids_T = self._known(ids)
        stops = np.flatnonzero(np.isin(ids_T, [*self.stop_ids]))
        return ids_T[: stops[0]] if stops.size else ids_T

    @staticmethod
    def _decode(raw: bytes) -> str:
        return _LONE_BYTE.sub("\ufffd", raw.decode("utf-8", "surrogateescape"))

    def _table(self, pieces: list[str], config: Mapping[str, Any]) -> list[bytes]:
        kinds = {part["type"]: part for part in _parts(config["decoder"])}
        if "ByteLevel" in kinds or any(part["type"] == "ByteLevel" for part in _parts(config["pre_tokenizer"])):
            letters = {letter: bytes([byte]) for byte, letter in byte_letters().items()}
            table = [b"".join(letters.get(c) or c.encode() for c in piece) for piece in pieces]
        elif "Metaspace" in kinds or "ByteFallback" in kinds:
            mark = kinds.get("Metaspace", {}).get("replacement", "▁")
            fallback = "ByteFallback" in kinds
            table = [_piece_bytes(piece, mark, fallback) for piece in pieces]
        else:
            raise RenderError(
                "the bytes of a token are known for byte-level BPE and for pieces with a space mark; this tokenizer "
                f"decodes with {', '.join(kinds) or 'nothing'}: "
                "use one with a ByteLevel, Metaspace or ByteFallback decoder"
            )
        for at, content in self.added.items():
            table[at] = content.encode()
        return table


def _piece_bytes(piece: str, mark: str, fallback: bool) -> bytes:
    byte = _FALLBACK.fullmatch(piece) if fallback else None
    return bytes([int(byte.group(1), 16)]) if byte else piece.replace(mark, " ").encode()


def _parts(config: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if config is None:
        return
    yield config
    for name in ("decoders", "pretokenizers"):
        for part in config.get(name, ()):
            yield from _parts(part)
