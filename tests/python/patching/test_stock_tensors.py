"""Tensors that the library has no kernels for run stock in patched models: f64 on a GPU. On the CPU, where f64 runs on the
reference, the decision is replaced by that of a GPU."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402

from tegula.autograd import table_entry  # noqa: E402
from tegula.patching import attention, hub  # noqa: E402


@pytest.fixture
def as_on_a_gpu(device, monkeypatch):
    """On a GPU nothing is replaced, so that attention, too, is chosen as it is for users."""
    if device == "cpu":
        decide, why = table_entry.runs_stock_for, attention.why_pytorch
        monkeypatch.setattr(table_entry, "runs_stock_for", lambda dtype, _: decide(dtype, "cuda"))
        monkeypatch.setattr("tegula.patching.model_report.runs_stock_for", lambda dtype, _: decide(dtype, "cuda"))
        monkeypatch.setattr(attention, "why_pytorch", lambda query, *more: "f64" if query.dtype == torch.float64 else why(query, *more))
    yield
    tegula.reset()


def test_the_decision():
    served = {
        "cpu": {torch.float64, torch.float32, torch.bfloat16, torch.float16}, "cuda": {torch.float32, torch.bfloat16, torch.float16},
        "mps": set(), "xpu": set(), "meta": {torch.float64, torch.float32, torch.bfloat16, torch.float16},
    }  # fmt: skip
    for device_type, dtypes in served.items():
        for dtype in served["cpu"]:
            assert table_entry.runs_stock_for(dtype, device_type) == (dtype not in dtypes), (dtype, device_type)


@pytest.mark.parametrize("variant", ["qwen3", "qwen3 window", "qwen2", "llama"])
@pytest.mark.parametrize("padding", [None, [0, 4]])
def test_models_in_f64(as_on_a_gpu, variant, padding):
    """Norms of transformers compute in f32 whatever the dtype, so that ops of ours would be seen."""
    model, inputs = tiny.make(variant, torch.float64), tiny.batch(padding=padding)
    stock, logits = tiny.loss_and_gradients(model, inputs), tiny.logits(model, inputs)
    tegula.apply_to_model(model)
    ours = tiny.loss_and_gradients(model, inputs)
    tiny.assert_close(ours, stock, 1e-12 if placed.device == "cpu" else 1e-9)
    assert tiny.distance(tiny.logits(model, inputs), logits) <= 1e-12
    note = f"tensors of torch.float64 on {placed.device} run in PyTorch"
    assert all(row.runs == "transformers" and note in row.note for row in tegula.report(model))
    model.float()
    assert "PyTorch" not in str(tegula.report(model)) and model(**inputs).logits is None


def test_a_norm_with_a_weight_in_f64(as_on_a_gpu):
    model = tiny.make()
    norm, x = model.model.norm.double(), placed.randn(2, 3, 64)
    want = norm(x)
    tegula.apply_to_model(model)
    ours, pair = norm(x), norm((x * 0.25, x * 0.75))
    assert ours.dtype == want.dtype == pair.dtype == torch.float64
    assert tiny.distance(ours, want) <= 1e-7 and tiny.distance(pair, want) <= 1e-6


def test_layers_of_the_kernels_package_in_f64(as_on_a_gpu):
    norm, x = tiny.make("llama", torch.float64).model.norm, placed.randn(3, 64).double()
    assert torch.equal(hub.RMSNorm.forward(norm, x), type(norm).forward(norm, x))
    act_fn = torch.nn.SiLU()
    assert torch.equal(hub.SiLU.forward(act_fn, x), torch.nn.functional.silu(x))


def test_autocast_leaves_f64_as_it_is(device):
    """As in a linear layer: the loss of hidden states in f64 is computed in f64."""
    from tegula.patching.models.causal_lm import operands

    head, hidden = placed.to_device(torch.nn.Linear(4, 3)), placed.randn(2, 4)
    with torch.autocast(placed.device, dtype=torch.bfloat16):
        assert {tensor.dtype for tensor in operands(hidden, head)} == {torch.bfloat16}
        head, hidden = head.double(), hidden.double()
        assert {tensor.dtype for tensor in operands(hidden, head)} == {torch.float64} == {head(hidden).dtype}
