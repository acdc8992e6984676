"""16-bit weights move by steps that their own precision would lose."""

import copy

import numpy as np
import pytest
import torch

from accredit.trainer.batch import rows_of
from accredit.trainer.config import LossConfig, OptimizerConfig
from accredit.trainer.master import MasterAdamW
from accredit.trainer.setup import make_optimizer
from accredit.trainer.sft import imitate
from accredit.trainer.update import Updater


def stepped(optimizer, weight, steps, towards=1.0):
    for _ in range(steps):
        optimizer.zero_grad()
        (-towards * weight.float().sum()).backward()
        optimizer.step()


def test_steps_too_small_for_bfloat16_add_up():
    weights = [
        torch.nn.Parameter(torch.ones(3, dtype=dtype)) for dtype in (torch.bfloat16, torch.bfloat16, torch.float32)
    ]
    kinds = [torch.optim.AdamW, MasterAdamW, torch.optim.AdamW]
    for weight, kind in zip(weights, kinds, strict=True):
        stepped(kind([weight], lr=1e-4, weight_decay=0.0), weight, 100)
    lost, kept, exact = weights
    assert (lost == 1).all()
    assert exact[0].item() > 1.009
    assert torch.equal(kept, exact.bfloat16())


def test_gradients_of_micro_batches_are_summed_in_float32():
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    optimizer = MasterAdamW([weight], lr=1.0)
    for part in [256.0, *[0.5] * 100]:  # in bfloat16, 256 + 0.5 is 256
        (weight * part).sum().backward()
    (master,) = optimizer.param_groups[0]["params"]
    assert master.grad.item() == 306
    assert weight.grad is None
    optimizer.zero_grad()
    assert master.grad is None


def test_a_state_that_is_loaded_goes_on_with_the_same_bits():
    def made():
        weight = torch.nn.Parameter(torch.linspace(0.5, 2, 9).bfloat16())
        return weight, MasterAdamW([weight], lr=3e-4)

    weight, optimizer = made()
    stepped(optimizer, weight, 7)
    again, resumed = made()
    again.data.copy_(weight)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    stepped(optimizer, weight, 20)
    stepped(resumed, again, 20)
    assert torch.equal(weight, again)
    for one, other in zip(optimizer.state_dict()["masters"], resumed.state_dict()["masters"], strict=True):
        assert torch.equal(one, other)


def test_an_update_of_16_bit_weights_clips_and_steps_the_gradient_of_all_micro_batches(model, sampled_trajectories):
    advantages = [t.credit_mask.astype(np.float64) for t in sampled_trajectories]
    norms = []
    for dtype, micro_tokens in ((torch.float32, 100_000), (torch.bfloat16, 512)):
        one = copy.deepcopy(model).to(dtype)
        config = OptimizerConfig(micro_tokens=micro_tokens)
        optimizer = make_optimizer(one, config)
        before = one.lm_head.weight.clone()
        metrics = Updater(one, optimizer, LossConfig(), config).update(sampled_trajectories, advantages, 1e-2, 0)
        norms.append(metrics["optimizer/grad_norm"])
        assert isinstance(optimizer, MasterAdamW) is (dtype is torch.bfloat16)
        assert not torch.equal(one.lm_head.weight, before)
    assert abs(norms[1] - norms[0]) < 0.05 * norms[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_imitation_clips_the_gradient_that_is_stepped(model, sampled_trajectories, dtype):
    ours = copy.deepcopy(model).to(dtype)
    optimizer = make_optimizer(ours, OptimizerConfig())
    ones = [trajectory.credit_mask.astype(np.float64) for trajectory in sampled_trajectories]
    told = imitate(ours, optimizer, rows_of(sampled_trajectories, ones), 1e-3, 1e-3, 16_384)
    assert told["optimizer/grad_norm"] > 0.01
    stepped = [weight.grad for group in optimizer.param_groups for weight in group["params"]]
    assert torch.nn.utils.get_total_norm([grad for grad in stepped if grad is not None]) == pytest.approx(
        1e-3, rel=0.01
    )
