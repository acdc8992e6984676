import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit import Recorder, Span, SpanError, SpanKind, StopReason, check_partition, credit_mask, value_mask

D, F = SpanKind.DECISION, SpanKind.FEEDBACK


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["prompt", "decision", "feedback", "scaffold"]), st.integers(0, 4))))
def test_spans_of_a_recording_partition_its_tokens(pieces):
    recorder = Recorder()
    kinds = []
    for kind, count in pieces:
        ids = list(range(count))
        recorder.decision(ids, [-1.0] * count) if kind == "decision" else getattr(recorder, kind)(ids)
        kinds += [kind] * count
    trajectory = recorder.finish(1.0, StopReason.DONE)
    check_partition(trajectory.spans, len(trajectory))
    assert [span.kind for span in trajectory.spans for _ in range(len(span))] == kinds
    assert trajectory.credit_mask.tolist() == [kind == "decision" for kind in kinds]
    assert trajectory.value_mask.tolist() == [kind in ("decision", "feedback") for kind in kinds]
    assert len(trajectory.credit_mask) == len(trajectory.token_ids)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([Span(0, 2, D, 0), Span(3, 4, F, 0)], "leaves a gap"),
        ([Span(0, 2, D, 0), Span(1, 4, F, 0)], "overlaps"),
        ([Span(0, 0, D, 0), Span(0, 4, F, 0)], "is empty"),
        ([Span(0, 3, D, 0)], "spans end at token 3 but the trajectory has 4"),
        ([Span(1, 4, D, 0)], "expected 0"),
    ],
)
def test_anything_but_a_partition_is_refused(spans, message):
    with pytest.raises(SpanError, match=message):
        check_partition(spans, 4)


def test_feedback_has_value_but_no_credit():
    spans = [Span(0, 1, SpanKind.PROMPT, -1), Span(1, 2, D, 0), Span(2, 3, F, 0), Span(3, 4, SpanKind.SCAFFOLD, 0)]
    assert np.flatnonzero(credit_mask(spans, 4)).tolist() == [1]
    assert np.flatnonzero(value_mask(spans, 4)).tolist() == [1, 2]
