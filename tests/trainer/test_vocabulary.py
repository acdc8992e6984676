"""Log-probabilities in blocks against the plain ones, in float64; and that the whole matrix is never held."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.trainer.vocabulary import log_probabilities


def plain(hidden_ND, weight_VD, bias_V, labels_N):
    logits = hidden_ND @ weight_VD.T
    logprobs = (logits if bias_V is None else logits + bias_V).log_softmax(-1)
    return logprobs.gather(1, labels_N[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


def tensors(tokens, vocabulary, size, seed=0, bias=True):
    torch.manual_seed(seed)
    hidden = torch.randn(tokens, size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(vocabulary, size, dtype=torch.float64, requires_grad=True)
    offset = torch.randn(vocabulary, dtype=torch.float64, requires_grad=True) if bias else None
    return hidden, weight, offset, torch.randint(vocabulary, (tokens,))


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 12),
    vocabulary=st.integers(1, 20),
    size=st.integers(1, 5),
    block=st.tuples(st.integers(1, 14), st.integers(1, 23)),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_blocks_give_the_plain_values_and_gradients(tokens, vocabulary, size, block, bias, seed):
    inputs = tensors(tokens, vocabulary, size, seed, bias)
    leaves = [leaf for leaf in inputs[:3] if leaf is not None]
    by_logprob, by_entropy = torch.randn(2, tokens, dtype=torch.float64)
    found, expected = log_probabilities(*inputs, block), plain(*inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    for weights in ((by_logprob, None), (None, by_entropy), (by_logprob, by_entropy)):
        gradients = [
            torch.autograd.grad(
                torch.stack([(w * part).sum() for w, part in zip(weights, parts, strict=True) if w is not None]).sum(),
                leaves,
                retain_graph=True,
            )
            for parts in (found, expected)
        ]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other)


def test_the_gradient_is_that_of_finite_differences():
    hidden, weight, bias, labels = tensors(5, 7, 3)
    assert bias is not None
    assert torch.autograd.gradcheck(
        lambda h, w, b: tuple(log_probabilities(h, w, b, labels, (2, 3))), (hidden, weight, bias)
    )


def test_a_frozen_head_gets_no_gradient_and_passes_one_on():
    hidden, weight, _, labels = tensors(5, 7, 3)
    log_probabilities(hidden, weight.detach(), None, labels).logprobs_N.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None


def test_logits_of_a_thousand_neither_overflow_nor_lose_the_small_differences():
    hidden = torch.tensor([[1000.0], [-1000.0]])
    weight = torch.tensor([[1.0], [0.999], [-1.0]])
    found = log_probabilities(hidden, weight, None, torch.tensor([0, 2]), (1, 1))
    expected = plain(hidden.double(), weight.double(), None, torch.tensor([0, 2]))
    torch.testing.assert_close(found.logprobs_N.double(), expected[0], atol=1e-4, rtol=0)  # float32 of 1000
    torch.testing.assert_close(found.entropy_N.double(), expected[1], atol=1e-3, rtol=0)


def test_16_bit_weights_are_summed_in_float32():
    *values, labels = tensors(64, 50, 96)
    hidden, weight, bias = (value.detach().bfloat16() for value in values if value is not None)
    found = log_probabilities(hidden, weight, bias, labels)
    expected = plain(hidden.double(), weight.double(), bias.double(), labels)
    assert found.logprobs_N.dtype is torch.float32
    torch.testing.assert_close(found.logprobs_N.double(), expected[0], atol=1e-4, rtol=1e-5)
    rounded = plain(hidden, weight, bias, labels)[0]  # what log-softmax of 16-bit logits would give
    assert (rounded.double() - expected[0]).abs().max() > 0.02


PEAK = """
import re, sys, torch
from accredit.trainer.vocabulary import log_probabilities
def status(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
hidden = torch.randn(4096, 64, requires_grad=True)
weight = torch.randn(49152, 64, requires_grad=True)
labels = torch.randint(49152, (4096,))
before = status("VmRSS")
if sys.argv[1] == "blocks":
    scores = log_probabilities(hidden, weight, None, labels)
    (scores.logprobs_N.sum() + scores.entropy_N.sum()).backward()
else:
    (hidden @ weight.T).log_softmax(-1).gather(1, labels[:, None]).sum().backward()
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak memory is read from /proc")
def test_tokens_times_vocabulary_is_never_held():
    matrix_mb = 4096 * 49152 * 4 / 2**20
    peak = {
        way: float(subprocess.run([sys.executable, "-c", PEAK, way], capture_output=True, text=True, check=True).stdout)
        for way in ("blocks", "plain")
    }
    assert peak["blocks"] < matrix_mb / 4
    assert peak["plain"] > matrix_mb * 1.5  # the measurement sees such a matrix where there is one
