"""Pieces: rendered token ids with the kind of span they will become."""

from collections.abc import Iterable
from typing import NamedTuple

from accredit.credit import SpanKind

__all__ = ["Piece", "join_pieces"]


class Piece(NamedTuple):
    """Ids of one kind, in the order they are appended."""

    kind: SpanKind
    ids: list[int]


def join_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbours of one kind and leave out empty pieces."""
    joined: list[Piece] = []
    for piece in pieces:
        if not piece.ids:
            continue
        if joined and joined[-1].kind is piece.kind:
            joined[-1].ids.extend(piece.ids)
        else:
            joined.append(Piece(piece.kind, list(piece.ids)))
    return joined
