"""Encodes text so that nothing in it can become a special token.

Text of users, tools and environments may spell `<|im_end|>`; it must stay text. A private copy of the tokenizer has
forgotten every added token but runs of white space, and one token of its own that stands for "a special token came
before", so that text is encoded exactly as it is behind one. The tokenizer that was given is never changed.
"""

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

from .tokentext import blueprint_of, byte_letters

__all__ = ["PlainText"]

BEHIND = "\U0010fffd\U0010fffc\U0010fffd"


class PlainText:
    """The plain encoder of one tokenizer. `control` holds the ids and texts that it never writes for text."""

    def __init__(self, tokenizer: Any) -> None:
        _, native, self._vocabulary = blueprint_of(tokenizer)
        kept = [token for token in native["added_tokens"] if not token["content"].strip()]
        self.control: dict[int, str] = {
            token["id"]: token["content"] for token in native["added_tokens"] if token["content"].strip()
        }
        byte_pieces = {f"<0x{byte:02X}>" for byte in range(256)} & self._vocabulary.keys()
        self._never = self.control | {self._vocabulary[piece]: piece for piece in byte_pieces}
        model = {**native["model"], "dropout": None} if native["model"].get("dropout") else native["model"]
        config = {**native, "model": model, "added_tokens": kept, "truncation": None, "padding": None}
        self._copy = Tokenizer.from_str(json.dumps(config))
        self._copy.add_special_tokens([AddedToken(BEHIND, special=True, normalized=False)])
        self._moved = {self._copy.token_to_id(token["content"]): token["id"] for token in kept}
        self._letters = byte_letters()
        byte_level = all(self._letters[byte] in self._vocabulary for byte in b"\n etaoin")
        spoken = [byte for byte, letter in self._letters.items() if letter in self._vocabulary or not byte_level]
        self._spoken = bytes(spoken)
        self._mute = len(spoken) < 256

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text` as it is encoded behind a special token."""
        return self.encode_parts([text])[0]

    def encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
        """Encode the joined `parts` in one go and return the ids of each.

        A token that owns characters of two parts goes to the later one.
        """
        clean = [self._sayable(part) for part in parts]
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
            spelled = self._never.get(token)
            if spelled is not None and joined[start - shift : end - shift].strip() == spelled:
                out[at].extend(self._spell(spelled))
            else:
                out[at].append(token)
        return out

    def _sayable(self, text: str) -> str:
        """Return text with U+FFFD for what has no ids: lone surrogates, and letters with a byte that has no token."""
        text = text.replace(BEHIND, "\ufffd")
        if text.isascii() and not self._mute:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        if b"\xed" not in raw and not raw.translate(None, self._spoken):
            return text
        return "".join(letter if self._can_say(letter) else "\ufffd" for letter in text)

    def _can_say(self, letter: str) -> bool:
        raw = letter.encode("utf-8", "surrogatepass")
        return not ("\ud800" <= letter <= "\udfff" or raw.translate(None, self._spoken))

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
