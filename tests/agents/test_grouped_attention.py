import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from accredit.agents.grouped_attention import NAME, attend_in_groups, attention
from accredit.agents.kvcache import causal_mask


class Layer(torch.nn.Module):
    """What attention asks of the layer that it belongs to."""

    def __init__(self, groups):
        super().__init__()
        self.num_key_value_groups = groups


def head_by_head(query, key, value, mask_B1NS, scaling):
    """Attention by its definition: softmax of scaled products, each query head with the keys of its group."""
    groups = query.shape[1] // key.shape[1]
    heads = []
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // groups].transpose(1, 2) * scaling
        heads.append(scores.masked_fill(~mask_B1NS[:, 0], float("-inf")).softmax(-1) @ value[:, head // groups])
    return torch.stack(heads, dim=2)


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize(("heads", "shared"), [(9, 3), (4, 1), (4, 4)])
def test_it_is_attention_of_every_head_with_its_groups_keys(heads, shared, queries):
    draw = torch.Generator().manual_seed(0)
    made = [torch.randn(3, h, n, 8, generator=draw) for h, n in ((heads, queries), (shared, 11), (shared, 11))]
    positions_BN = torch.tensor([[2], [10 - queries], [5]]) + torch.arange(queries)
    mask = causal_mask(positions_BN, 11)
    ours, plain = ([tensor.clone().requires_grad_() for tensor in made] for _ in range(2))
    found, _ = attention(Layer(heads // shared), ours[0], ours[1], ours[2], mask, scaling=0.3)
    expected = head_by_head(plain[0], plain[1], plain[2], mask, 0.3)
    torch.testing.assert_close(found, expected)
    weight = torch.randn(expected.shape, generator=draw)
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize(("attend", "copies"), [(attention, False), (sdpa_attention_forward, True)])
def test_keys_and_values_are_not_copied_for_every_query_head(attend, copies):
    key, value = (torch.randn(4, 3, 500, 64) for _ in range(2))
    query, mask = torch.randn(4, 9, 1, 64), torch.ones(4, 1, 1, 500, dtype=torch.bool)
    layer = Layer(3)
    with torch.profiler.profile(profile_memory=True) as profile:
        attend(layer, query, key, value, mask, scaling=0.1)
    assert (max(event.cpu_memory_usage for event in profile.events() or ()) > key.nbytes) == copies


def test_a_model_that_attends_in_a_way_of_its_own_keeps_it(model):
    assert model.config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    attend_in_groups(model)
    assert model.config._attn_implementation == "eager"
    model.set_attn_implementation("sdpa")
    attend_in_groups(model)
    assert model.config._attn_implementation == NAME
