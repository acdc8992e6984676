import pytest

from accredit.progress import RunProgress

METRICS = {
    "rollout/reward": 1.0,
    "rollout/charges": 0.0,
    "rollout/turns": 2.0,
    "credit/spread": 0.0,
    "policy/entropy_nats": 0.002,
    "time/step_s": 0.2,
    "time/rollout_s": 0.1,
}


@pytest.mark.parametrize(("norm", "said"), [(0.681, "grad 0.68 "), (float("nan"), "grad none "), (None, "grad none ")])
def test_a_step_that_had_nothing_to_learn_has_no_gradient(
    norm: float | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    RunProgress().stepped(6, METRICS | {"optimizer/grad_norm": norm})
    assert said in " ".join(capsys.readouterr().out.split("\n"))
