"""The tiny model with weights far from uniform, so that a wrong mask or position shows."""

import pytest
import torch


@pytest.fixture(scope="session")
def renderer(tiny_renderer):
    return tiny_renderer


@pytest.fixture
def model(make_tiny_llama):
    made = make_tiny_llama().eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(3)
    return made
