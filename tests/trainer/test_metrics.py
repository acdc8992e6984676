"""The metrics of a run outlive a crash."""

from accredit.trainer.metrics import MetricsWriter, read_metrics


def test_a_line_torn_by_a_crash_does_not_swallow_the_next(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1, "rollout/reward": 0.1}\n{"step": 2, "rollout/rew')
    writer = MetricsWriter(tmp_path)
    for step in (2, 3):
        writer.write(step, {"rollout/reward": step / 10})
    writer.close()
    assert read_metrics(file) == [{"step": step, "rollout/reward": step / 10} for step in (1, 2, 3)]
    again = MetricsWriter(tmp_path)
    again.close()
    assert "\n\n" not in file.read_text(), "what is whole is left as it is"
