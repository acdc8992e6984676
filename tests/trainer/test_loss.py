import pytest
import torch

from accredit.trainer.loss import LossError, kl_penalty, policy_loss


def test_on_policy_the_gradient_is_minus_advantage_times_the_score():
    logits = torch.tensor([0.3, -0.2, 0.9], requires_grad=True)
    for kind in ("clipped", "unclipped"):
        for action in range(3):
            logprob = logits.log_softmax(-1)[action]
            loss, _ = policy_loss(logprob[None], logprob.detach()[None], torch.tensor([0.7]), kind)
            (found,) = torch.autograd.grad(loss.sum(), logits)
            (score,) = torch.autograd.grad(logits.log_softmax(-1)[action], logits)
            torch.testing.assert_close(found, -0.7 * score)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "held"),
    [
        (1.5, 1.0, -1.28, True),
        (1.5, -1.0, 1.5, False),
        (0.5, 1.0, -0.5, False),
        (0.5, -1.0, 0.8, True),
        (1.1, 2.0, -2.2, False),
    ],
)
def test_the_clip_takes_the_gradient_only_where_it_lowers_the_objective(ratio, advantage, expected, held):
    logprob = torch.tensor([ratio]).log().requires_grad_()
    loss, clipped = policy_loss(logprob, torch.zeros(1), torch.tensor([advantage]))
    (gradient,) = torch.autograd.grad(loss.sum(), logprob)
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert clipped.item() is held
    assert (gradient.item() == 0) is held


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_kl_penalty_pulls_towards_the_reference_in_expectation(estimator):
    reference = torch.tensor([0.0, 0.5, -1.0, 0.2]).log_softmax(-1)
    logits = torch.tensor([1.0, -0.5, 0.3, 0.0], requires_grad=True)
    # the expectation over what the policy samples, by enumeration
    logprobs = logits.log_softmax(-1)
    penalty = kl_penalty(logprobs, reference, estimator)
    (gradient,) = torch.autograd.grad((penalty * logprobs.exp().detach()).sum(), logits, retain_graph=True)
    assert gradient.norm() > 0.05
    exact = (logprobs.exp() * (logprobs - reference)).sum()
    (exact_gradient,) = torch.autograd.grad(exact, logits)
    if estimator in ("k1", "k2"):
        torch.testing.assert_close(gradient, exact_gradient)
    with torch.no_grad():
        after = (logits - 0.01 * gradient).log_softmax(-1)
        assert (after.exp() * (after - reference)).sum() < exact


def test_the_kl_penalty_of_the_reference_itself_is_zero():
    logprobs = torch.tensor([-0.3, -2.0, -5.0], requires_grad=True)
    for estimator in ("k1", "k2", "k3"):
        penalty = kl_penalty(logprobs, logprobs.detach(), estimator)
        (gradient,) = torch.autograd.grad(penalty.sum(), logprobs)
        assert penalty.abs().max() == 0
        assert gradient.abs().max() == 0


def test_k1_has_the_value_of_the_log_ratio_and_k3_is_never_negative():
    logprobs, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    torch.testing.assert_close(kl_penalty(logprobs, reference, "k1"), torch.tensor([0.5, -1.0]))
    assert (kl_penalty(logprobs, reference, "k3") >= 0).all()


def test_unknown_forms_are_named_in_the_error():
    one = torch.zeros(1)
    with pytest.raises(LossError, match="'ppo': expected clipped or unclipped"):
        policy_loss(one, one, one, "ppo")
    with pytest.raises(LossError, match="'k4': expected k1, k2 or k3"):
        kl_penalty(one, one, "k4")
