import numpy as np
import pytest
import torch

from accredit.credit import Recorder, StopReason
from accredit.trainer.batch import BatchError, collate, micro_batches, rows_of, weigh
from accredit.trainer.logprobs import score
from accredit.trainer.loss import policy_loss


def trajectory(decisions, prompt=(5, 6, 7), episode_id="ep"):
    recorder = Recorder(episode_id=episode_id)
    recorder.prompt(list(prompt))
    for ids in decisions:
        recorder.decision(ids, np.full(len(ids), -1.0))
        recorder.feedback([9, 9])
    return recorder.finish(1.0, StopReason.DONE)


def advantages_of(trajectories, value=1.0):
    return [np.where(t.credit_mask, value, 0.0) for t in trajectories]


def weights(rows):
    return {row.owner: row.weight_N for row in rows}


def test_targets_are_exactly_the_decision_tokens():
    one = trajectory([[11, 12], [13]])
    (row,) = rows_of([one], advantages_of([one]))
    batch = collate([row])
    assert batch.labels_N.tolist() == [11, 12, 13]
    assert row.targets_N.tolist() == np.flatnonzero(one.credit_mask).tolist()


def test_an_advantage_on_a_token_that_was_not_decided_is_refused():
    one = trajectory([[11, 12]])
    wrong = np.zeros(len(one))
    wrong[5] = 0.5
    with pytest.raises(BatchError, match="token 5 was not decided by the policy"):
        rows_of([one], [wrong])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_advantage_that_is_not_finite_is_refused(bad):
    one = trajectory([[11, 12]])
    wrong = np.zeros(len(one))
    wrong[3] = bad
    with pytest.raises(BatchError, match="token 3 is not finite"):
        rows_of([one], [wrong])


def test_aggregations_weigh_tokens_as_their_names_say():
    group = [trajectory([[11]]), trajectory([[11, 12], [13]])]
    rows = rows_of(group, advantages_of(group))
    by_token = weights(weigh(rows, "token_mean"))
    by_sequence = weights(weigh(rows, "sequence_mean"))
    constant = weights(weigh(rows, "constant", constant_tokens=10))
    assert by_token[0].tolist() == pytest.approx([1 / 4])
    assert by_token[1].tolist() == pytest.approx([1 / 4] * 3)
    assert by_sequence[0].tolist() == pytest.approx([1 / 2])
    assert by_sequence[1].tolist() == pytest.approx([1 / 6] * 3)
    assert constant[1].tolist() == pytest.approx([1 / 20] * 3)


def test_trajectories_without_signal_enter_neither_sum_nor_mean():
    group = [trajectory([[11]]), trajectory([[11, 12]])]
    advantages = [np.zeros(len(group[0])), advantages_of(group)[1]]
    (row,) = weigh(rows_of(group, advantages), "token_mean")
    assert row.owner == 1
    assert row.weight_N.tolist() == pytest.approx([1 / 2] * 2)
    silent, loud = weigh(rows_of(group, advantages), "token_mean", keep_silent=True)
    assert silent.weight_N.tolist() == [0.0]
    assert silent.kl_weight_N.tolist() == pytest.approx([1 / 3])
    assert loud.weight_N.tolist() == pytest.approx([1 / 2] * 2)


def test_tokens_that_teach_nothing_are_counted_but_not_worked_on():
    one = trajectory([[11, 12], [13, 14], [15]])
    advantage = np.zeros(len(one))
    advantage[np.flatnonzero(one.credit_mask)[2]] = 0.5  # token 13
    (row,) = weigh(rows_of([one], [advantage]), "token_mean")
    assert row.token_ids_T[row.targets_N].tolist() == [13]
    assert row.token_ids_T[-1] == 13
    assert row.weight_N.tolist() == pytest.approx([1 / 5])


def test_a_new_segment_is_a_row_of_its_own():
    recorder = Recorder()
    recorder.prompt([5, 6])
    recorder.decision([11], [-1.0])
    recorder.segment("the template drops old thoughts")
    recorder.prompt([5, 7])
    recorder.decision([12, 13], [-1.0, -2.0])
    one = recorder.finish(1.0, StopReason.DONE)
    first, second = rows_of([one], advantages_of([one]))
    assert first.token_ids_T.tolist() == [5, 6, 11]
    assert second.token_ids_T.tolist() == [5, 7, 12, 13]
    assert second.logprobs_N.tolist() == [-1.0, -2.0]
    assert weights(weigh([first, second], "sequence_mean"))[0].tolist() == pytest.approx([1 / 3] * 2)


def test_a_decision_with_nothing_before_it_is_refused():
    recorder = Recorder(episode_id="ep-9")
    recorder.decision([11], [-1.0])
    one = recorder.finish(1.0, StopReason.DONE)
    with pytest.raises(BatchError, match="ep-9: token 0 was decided with nothing before it"):
        rows_of([one], advantages_of([one]))


def gradient(model, rows, most_tokens):
    model.zero_grad()
    total = 0.0
    for part in micro_batches(rows, most_tokens):
        batch = collate(part)
        loss_N, _ = policy_loss(score(model, batch).logprobs_N, batch.logprobs_N, batch.advantages_N)
        loss = (loss_N * batch.weight_N).sum()
        loss.backward()
        total += loss.item()
    return total, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant"])
def test_the_split_into_micro_batches_and_the_padding_change_no_result(model, aggregation):
    rng = np.random.default_rng(0)
    group = [
        trajectory([rng.integers(20, 90, n), rng.integers(20, 90, 3)], rng.integers(20, 90, m))
        for n, m in [(2, 3), (9, 30), (5, 8), (1, 60)]
    ]
    advantages = [np.where(t.credit_mask, rng.normal(size=len(t)), 0.0) for t in group]
    rows = weigh(rows_of(group, advantages), aggregation)
    whole_loss, whole = gradient(model, rows, 10_000)
    for most_tokens in (1, 64, 150):
        loss, found = gradient(model, rows, most_tokens)
        assert loss == pytest.approx(whole_loss, rel=1e-5)
        # float32 sums in another order
        torch.testing.assert_close(found, whole, atol=1e-6, rtol=1e-4)


def test_micro_batches_hold_every_row_once_and_keep_to_the_budget():
    group = [trajectory([[11 + n] * n]) for n in (1, 4, 9, 20, 3, 3)]
    rows = rows_of(group, advantages_of(group))
    parts = list(micro_batches(rows, 24))
    assert sorted(row.owner for part in parts for row in part) == list(range(6))
    for part in parts:
        assert len(part) == 1 or len(collate(part).token_ids_T) <= 24


def test_what_rows_of_a_micro_batch_share_counts_once():
    rng = np.random.default_rng(0)
    prompts = [range(100), range(1000, 1100)]
    group = [trajectory([rng.integers(20, 90, 10)], prompt=prompts[at % 2]) for at in range(8)]
    rows = rows_of(group, advantages_of(group))
    parts = list(micro_batches(rows, 140))
    assert [sorted(row.owner % 2 for row in part) for part in parts] == [[0] * 4, [1] * 4]
    assert [len(collate(part).token_ids_T) for part in parts] == [140, 140]
