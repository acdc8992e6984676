"""Encodes text so that nothing in it can become a special token.

Text of users, tools and environments may spell `<|im_end|>`; it must stay text. A private copy of the tokenizer has
forgotten every added token but runs of white space, and one token of its own that stands for "a special token came
before", so that text is encoded exactly as it is behind one. The tokenizer that was given is never changed.
"""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

from .tokentext import backend_of, byte_letters

__all__ = ["PlainText"]

BEHIND = "\U0010fffd\U0010fffc\U0010fffd"


class PlainText:
    """The plain encoder of one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        native = backend_of(tokenizer)
        config = json.loads(native.to_str())
        kept = [token for token in config["added_tokens"] if not token["content"].strip()]
        self.control: dict[int, str] = {
            token["id"]: token["content"] for token in config["added_tokens"] if token["content"].strip()
        }
        config |= {"added_tokens": kept, "truncation": None, "padding": None}
        if config["model"].get("dropout"):
            config["model"]["dropout"] = None
        self._copy = Tokenizer.from_str(json.dumps(config))
        self._copy.add_special_tokens([AddedToken(BEHIND, special=True, normalized=False)])
        self._moved = {self._copy.token_to_id(token["content"]): token["id"] for token in kept}
        self._vocabulary = native.get_vocab(with_added_tokens=False)
        self._letters = byte_letters()

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text` as it is encoded behind a special token."""
        return self.encode_parts([text])[0]

    def encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
        """Encode the joined `parts` in one go and return the ids of each.

        A token that owns characters of two parts goes to the later one.
        """
        clean = [_encodable(part) for part in parts]
        joined = "".join(clean)
        encoding = self._copy.encode(BEHIND + joined, add_special_tokens=False)
        shift = len(BEHIND)
        ends: list[int] = []
        for part in clean:
            ends.append((ends[-1] if ends else shift) + len(part))
        out: list[list[int]] = [[] for _ in parts]
        at = 0
        for token, (start, end) in list(zip(encoding.ids, encoding.offsets, strict=True))[1:]:
            while at < len(parts) - 1 and end > ends[at]:
                at += 1
            token = self._moved.get(token, token)
            spelled = self.control.get(token)
            if spelled is not None and joined[start - shift : end - shift].strip() == spelled:
                out[at].extend(self._spell(spelled))
            else:
                out[at].append(token)
        return out

    def _spell(self, text: str) -> list[int]:
        ids: list[int] = []
        for letter in text:
            raw = letter.encode()
            spellings = (
                [letter],
                [self._letters[byte] for byte in raw],
                [f"<0x{byte:02X}>" for byte in raw],
            )
            for spelling in spellings:
                found = [self._vocabulary[piece] for piece in spelling if piece in self._vocabulary]
                if len(found) == len(spelling):
                    ids.extend(found)
                    break
        return ids


def _encodable(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode() if _has_surrogate(text) else text
    return text.replace(BEHIND, "\ufffd")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)
