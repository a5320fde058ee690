"""The loss of patched models: its arguments, what comes with it, and heads that need logits."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402

pytestmark = pytest.mark.usefixtures("device", "stock_afterwards")
F32 = 1e-5


@pytest.mark.parametrize("count", [7, torch.tensor(7), torch.tensor([7]), torch.tensor([[7.0]])])
def test_num_items_in_batch(count):
    model, inputs = tiny.make(), tiny.batch()
    stock = tiny.loss_and_gradients(model, dict(inputs, num_items_in_batch=7))
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, dict(inputs, num_items_in_batch=count)), stock, F32)


def test_arguments_of_the_loss():
    model, inputs = tiny.make(), tiny.batch()
    shifted = torch.nn.functional.pad(inputs["labels"], (0, 1), value=-100)[..., 1:].contiguous()
    other = inputs["labels"].masked_fill(inputs["labels"] == -100, 5)
    cases = [
        dict(shift_labels=shifted), dict(labels=other, ignore_index=5), dict(labels=inputs["labels"].int()),
        dict(logits_to_keep=4, shift_labels=shifted[:, -4:].contiguous()),
        dict(logits_to_keep=placed.tensor([2, 9]), shift_labels=shifted[:, [2, 9]].contiguous()),
    ]  # fmt: skip
    stock = [tiny.loss_and_gradients(model, {**inputs, **case, "labels": case.get("labels", inputs["labels"]).long()}) for case in cases]
    tegula.apply_to_model(model)
    for case, want in zip(cases, stock):
        tiny.assert_close(tiny.loss_and_gradients(model, {**inputs, **case}), want, F32)
    with pytest.raises(ValueError, match=r"labels: expected \[2, 4\], got \[2, 17\]"):
        model(**inputs, logits_to_keep=4)
    nothing = torch.full_like(inputs["labels"], -100)
    assert model(inputs["input_ids"], labels=nothing).loss.isnan()
    assert model(inputs["input_ids"], labels=nothing, num_items_in_batch=0).loss.isnan()


def test_logits_are_there_when_asked_for():
    model, inputs = tiny.make(), tiny.batch()
    want = model(**inputs)
    tegula.apply_to_model(model)
    out = model(**inputs)
    assert out.logits is None and "logits" not in out
    assert torch.equal(model(**inputs, return_dict=False)[0], out.loss)
    asked = model(**inputs, skip_logits=False)
    assert tiny.distance(asked.logits, want.logits) <= F32 and tiny.distance(asked.loss, out.loss) <= F32
    assert model(input_ids=inputs["input_ids"]).logits.shape == want.logits.shape
    model.eval()
    assert model(**inputs).logits.shape == want.logits.shape
    assert model(**inputs, skip_logits=True).logits is None


def test_evaluation_leaves_logits_in_their_dtype():
    """Its loss is the original's without a copy of the logits in f32."""
    model, inputs = tiny.make(dtype=torch.bfloat16).eval(), tiny.batch()
    shifted = torch.nn.functional.pad(inputs["labels"], (0, 1), value=-100)[..., 1:].contiguous()
    cases = [{}, dict(num_items_in_batch=7), dict(logits_to_keep=4, shift_labels=shifted[:, -4:].contiguous())]
    tegula.apply_to_model(model)
    largest = []

    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), words=None):
            found = function(*arguments, **(words or {}))
            largest.extend(t.numel() for t in [found] if isinstance(t, torch.Tensor) and t.dtype == torch.float32)
            return found

    with torch.no_grad():
        for case in cases:
            with Largest():
                out = model(**inputs, **case)
            want = model.loss_function(out.logits, inputs["labels"], model.config.vocab_size, **case)
            assert out.logits.dtype == torch.bfloat16 and out.loss.dtype == torch.float32
            assert tiny.distance(out.loss, want) <= F32
            assert torch.equal(model(**inputs, **case, return_dict=False)[0], out.loss)
            assert max(largest) < out.logits.numel()


def test_evaluation_takes_the_shapes_of_the_original():
    model, inputs = tiny.make().eval(), tiny.batch()
    row = {name: value[:1] for name, value in inputs.items()}
    shifted = torch.nn.functional.pad(inputs["labels"], (0, 1), value=-100)[..., 1:]
    cases = [dict(row, labels=row["labels"][0]), dict(inputs, shift_labels=shifted.flatten())]
    with torch.no_grad():
        wants = [model(**case).loss for case in cases]
        tegula.apply_to_model(model)
        for case, want in zip(cases, wants):
            assert tiny.distance(model(**case).loss, want) <= F32
            assert tiny.distance(model.train()(**case).loss, want) <= F32
            model.eval()


def test_evaluation_adds_the_loss_of_routers():
    model, inputs = tiny.make("gpt_oss").eval(), dict(tiny.batch(), output_router_logits=True)
    with torch.no_grad():
        want = model(**inputs)
        tegula.apply_to_model(model)
        out = model(**inputs)
    assert want.aux_loss > 0 and tiny.distance(out.loss, want.loss) <= F32
    assert tiny.distance(out.aux_loss, want.aux_loss) <= F32 and list(out) == list(want)


def test_scores_of_tokens_without_logits():
    model, inputs = tiny.make(), tiny.batch()
    out = model(**inputs)
    targets = torch.nn.functional.pad(inputs["labels"], (0, 1), value=-100)[..., 1:]
    counted, scores = targets != -100, out.logits.log_softmax(-1)
    want = scores.gather(-1, targets.clamp(min=0)[..., None])[..., 0].where(counted, 0)
    hits = (out.logits.argmax(-1) == targets)[counted].float().mean()
    tegula.apply_to_model(model)
    for training in (True, False):
        ours = model.train(training)(**inputs, return_log_probs=True, return_token_accuracy=True)
        assert ours.logits is None
        assert tiny.distance(ours.log_probs, want) <= F32 and tiny.distance(ours.loss, out.loss) <= F32
        assert ours.token_accuracy == hits
    ours.log_probs.sum().backward()
    assert model.lm_head.weight.grad.abs().max() > 0
    with pytest.raises(ValueError, match="log_probs, token_accuracy: expected its loss, but there are no labels"):
        model(inputs["input_ids"], return_log_probs=True)


def test_heads():
    """Frozen: no gradient; with a bias: its gradient, too; of another kind or with a loss of its own: stock, and said."""
    model, inputs = tiny.make(), tiny.batch()
    bias = placed.to_device(torch.nn.Linear(64, 97))
    model.lm_head = bias
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
    assert "lm_head.bias" in stock[1]
    bias.requires_grad_(False)
    model.zero_grad(set_to_none=True)
    frozen = tiny.loss_and_gradients(model, inputs)
    assert "lm_head.weight" not in frozen[1] and tiny.distance(frozen[0], stock[0]) <= F32
    bias.requires_grad_(True)
    handle = bias.register_forward_hook(lambda module, arguments, out: out * 1.0)
    assert model(**inputs).logits is not None
    assert "loss from logits: lm_head has hooks" in str(tegula.report(model))
    handle.remove()
    model.loss_function = lambda logits, labels, **kwargs: logits.mean()
    assert model(**inputs).logits is not None
    assert "loss from logits: the model has a loss function of its own" in str(tegula.report(model))


@pytest.mark.cpu("its group of processes is gloo's")
def test_a_distributed_head(tmp_path):
    """Stock, which says that it wants the whole weight; the report says it before."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    model, inputs = tiny.make(), tiny.batch()
    tegula.apply_to_model(model)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model.lm_head.weight = torch.nn.Parameter(distribute_tensor(model.lm_head.weight, init_device_mesh("cpu", (1,))))
        assert "loss from logits: lm_head.weight is a DTensor" in str(tegula.report(model))
        with pytest.raises(RuntimeError, match="mixed torch.Tensor and DTensor"):
            model(**inputs)
    finally:
        torch.distributed.destroy_process_group()
