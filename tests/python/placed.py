"""Tensors on the device of the test that runs: torch's functions by their names, with the same values everywhere."""

import functools

import pytest
import torch

device = "cpu"  # set by the fixture of the same name


def to_device(made):
    """A tensor, a module, or a dict of tensors."""
    if isinstance(made, dict):
        return {name: value.to(device) for name, value in made.items()}
    return made.to(device)


def placing(function):
    @functools.wraps(function)
    def make(*arguments, requires_grad=False, **named):
        return to_device(function(*arguments, **named)).requires_grad_(requires_grad)

    return make


arange, empty, full, linspace, ones = map(placing, (torch.arange, torch.empty, torch.full, torch.linspace, torch.ones))
rand, randint, randn, tensor, zeros = map(placing, (torch.rand, torch.randint, torch.randn, torch.tensor, torch.zeros))


def skip_f64(dtype):
    if dtype == torch.float64 and device != "cpu":
        pytest.skip("f64 is for the reference, which runs on the CPU alone")
