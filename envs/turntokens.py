"""Writes a turn's report into a recorder: from characters of the message to tokens of the trajectory.

A token belongs to every range that owns any of its bytes; tokens across a call's border are noted as straddling.
Nothing is encoded or decoded here.
"""

from collections.abc import Sequence

from accredit.credit import Call, Recorder, TokenRange

from .parsed import CharRange, ParsedCall
from .rendering import chars_to_tokens
from .results import CallResult, TurnReport

__all__ = ["record_turn"]


def record_turn(recorder: Recorder, report: TurnReport, spans: Sequence[CharRange], start: int) -> None:
    """Record calls, charges and straddling tokens of the current turn.

    Args:
        recorder: its last span is the turn's decision.
        report: what the environment says of the message.
        spans: the characters of the message that each sampled id owns.
        start: the decision's first token in the trajectory.

    """
    for result in report.results:
        _record_call(recorder, report.parsed.calls[result.index], result, spans, start)


def _record_call(
    recorder: Recorder, call: ParsedCall, result: CallResult, spans: Sequence[CharRange], start: int
) -> None:
    def tokens(chars: CharRange) -> TokenRange:
        first, last = chars_to_tokens(spans, chars)
        return start + first, start + last

    whole = tokens((call.start, call.end))
    detail = dict(result.detail)
    if call.repairs:
        detail["repairs"] = list(call.repairs)
    index = recorder.call(
        Call(
            turn=recorder.turn,
            start=whole[0],
            end=whole[1],
            id=call.id,
            name=call.name,
            arguments=call.arguments,
            status=result.status,
            result=result.text,
            truncated=result.truncated,
            name_range=None if call.name_range is None else tokens(call.name_range),
            argument_ranges={path: tokens(chars) for path, chars in call.argument_ranges.items()},
            started_s=result.started_s,
            duration_s=result.duration_s,
            detail=detail,
        )
    )
    for charge in result.charges:
        first, last = tokens((charge.start, charge.end))
        if first >= last:
            first, last = whole
        recorder.charge(first, last, charge.amount, charge.reason, index)
    recorder.straddle(_straddling(spans, call, (whole[0] - start, whole[1] - start), start))


def _straddling(spans: Sequence[CharRange], call: ParsedCall, whole: TokenRange, start: int) -> list[int]:
    first, last = whole
    ends = {at for at in (first, last - 1) if first <= at < last}
    return [start + at for at in ends if spans[at][0] < call.start or spans[at][1] > call.end]
