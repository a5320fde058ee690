"""Patched MLPs on Hopper: gate and up as one product where nobody would notice."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from transformers import Qwen3Config  # noqa: E402
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP  # noqa: E402

from tegula import ops  # noqa: E402
from tegula.patching.models import gate_and_up  # noqa: E402

pytestmark = pytest.mark.usefixtures("device", "stock_afterwards")
ROWS, OUT = 130, 6152  # 2 x 65 tiles


def mlp(out=OUT, dtype=torch.bfloat16):
    torch.manual_seed(0)
    module = Qwen3MLP(Qwen3Config(hidden_size=64, intermediate_size=out))
    return placed.to_device(module).to(dtype)


def rows_of(count=ROWS):
    return placed.randn(2, count // 2, 64).bfloat16().requires_grad_()


def test_who_sees_a_layer():
    x = rows_of()
    assert gate_and_up.is_plain(mlp().gate_proj, x)
    assert not gate_and_up.is_plain(mlp(dtype=torch.float16).gate_proj, x)
    biased, hooked, own = nn.Linear(64, 8, bias=True), mlp().gate_proj, mlp().gate_proj
    assert not gate_and_up.is_plain(placed.to_device(biased).bfloat16(), x)
    hooked.register_forward_hook(lambda *arguments: None)
    assert not gate_and_up.is_plain(hooked, x)
    own.forward = lambda x: x
    assert not gate_and_up.is_plain(own, x)

    class Adapted(nn.Linear):
        pass

    assert not gate_and_up.is_plain(placed.to_device(Adapted(64, 8, bias=False)).bfloat16(), x)


def test_few_rows_and_few_tiles_are_two_products():
    assert gate_and_up.has_tiles(mlp(), rows_of()) and not gate_and_up.has_tiles(mlp(), rows_of(64))
    assert not gate_and_up.has_tiles(mlp(96), rows_of())


def calls(monkeypatch):
    """Grows with each call of the op."""
    counted, run = [], ops.linear_swiglu

    def count(*arguments, **named):
        counted.append(1)
        return run(*arguments, **named)

    monkeypatch.setattr(ops, "linear_swiglu", count)
    monkeypatch.setattr(gate_and_up, "ENABLED", True)
    return counted


def results(module, x):
    y = module(x)
    parameters = [x, *module.parameters()]
    return [y, *torch.autograd.grad(y.float().square().mean(), parameters)]


def test_one_product_on_hopper(monkeypatch):
    """The values of the unpatched module, to rounding: cuBLAS adds in an order of its own."""
    if placed.device != "cuda" or not gate_and_up.is_hopper(0):
        pytest.skip("needs a GPU of compute capability 9.0")
    module, x, counted = mlp(), rows_of(), calls(monkeypatch)
    theirs = results(module, x)
    tegula.apply(model_type="qwen3")
    ours = results(module, x)
    assert len(counted) == 1
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).float().norm() <= 0.01 * b.float().norm()
    with torch.autocast("cuda", torch.bfloat16):
        module(x)
    module.up_proj.register_forward_hook(lambda *arguments: None)
    module(x)
    assert len(counted) == 1
