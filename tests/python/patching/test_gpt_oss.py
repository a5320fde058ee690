"""GPT-OSS patched: norms, positions, attention with sinks and windows, masks, loss, and all of it with its experts. Those of
every family are in test_sparse_models.py."""

import copy
import functools

import pytest
import tiny_models as tiny
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tegula

transformers = pytest.importorskip("transformers")
modelling = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
# Two layers with a window of 5 tokens, two without; 33 tokens cross it several times.
BOUND = 1e-4
SHAPE = (2, 33)


@pytest.fixture(autouse=True)
def unpatched():
    yield
    tegula.reset()


def make(**sizes):
    return tiny.make("gpt_oss", **sizes)


def both(inputs, change=lambda model: None, **sizes):
    """(stock, patched): loss and gradients, of models that `change` has changed."""
    found = []
    for patch in (False, True):
        if patch:
            assert "attention_gpt_oss" in tegula.apply(model_type="gpt_oss")
        model = make(**sizes)
        change(model)
        found.append(tiny.loss_and_gradients(model, inputs))
    return found


@pytest.mark.parametrize("padding", [None, (7, 0), (-7, 0)], ids=["whole", "left", "right"])
@pytest.mark.parametrize("balanced", [False, True])
def test_loss_and_gradients(padding, balanced):
    inputs = dict(tiny.batch(SHAPE, padding=padding), output_router_logits=balanced)
    theirs, ours = both(inputs)
    assert any(name.endswith("sinks") for name in theirs[1])
    tiny.assert_close(ours, theirs, BOUND)


def test_the_auxiliary_loss_is_added_once():
    inputs = tiny.batch(SHAPE)
    stock = make()(**inputs, output_router_logits=True)
    tegula.apply(model_type="gpt_oss")
    model = make()
    alone, out = model(**inputs), model(**inputs, output_router_logits=True)
    assert alone.aux_loss is None and type(out) is type(stock)
    assert torch.allclose(out.aux_loss, stock.aux_loss)
    assert torch.allclose(out.loss, alone.loss + model.router_aux_loss_coef * out.aux_loss)
    assert len(out.router_logits) == len(stock.router_logits) == model.config.num_hidden_layers
    scored = model(**inputs, output_router_logits=True, return_log_probs=True)
    assert torch.allclose(scored.loss, out.loss) and torch.allclose(scored.aux_loss, out.aux_loss)


@pytest.mark.parametrize("op", ["rms_norm", "rope", "fused_linear_cross_entropy", "attention"])
def test_each_op_alone(op):
    model, inputs = make(), tiny.batch((2, 9))
    stock = tiny.loss_and_gradients(model, inputs)
    others = {name: False for name in ("rms_norm", "rope", "fused_linear_cross_entropy", "attention", "experts") if name != op}
    with tegula.patched(model, **others) as names:
        assert names == [f"{op}_gpt_oss"]
        tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, BOUND)


def test_bf16_within_pytorchs_own_distance():
    """With every expert chosen: one ulp may change which of them the k largest are."""
    model, inputs = make(dtype=torch.bfloat16, num_experts_per_tok=4), tiny.batch(SHAPE)
    exact = tiny.loss_and_gradients(copy.deepcopy(model).float(), inputs)
    stock = tiny.loss_and_gradients(model, inputs)
    tegula.apply_to_model(model)
    ours = tiny.loss_and_gradients(model, inputs)

    def errors(found):
        return sum((found[1][name].double() - exact[1][name].double()).norm().item() for name in exact[1])

    assert errors(ours) <= 1.1 * errors(stock)
    assert abs(ours[0] - exact[0]) <= 2**-11 * exact[0]


def test_checkpointed_layers():
    theirs, ours = both(tiny.batch(SHAPE), lambda model: model.gradient_checkpointing_enable())
    tiny.assert_close(ours, theirs, BOUND)


def test_windows_of_many_tiles():
    """Prompts shorter than the window would not show that it is ignored."""
    sizes = dict(num_hidden_layers=2, sliding_window=128, max_position_embeddings=512)
    theirs, ours = both(tiny.batch((1, 300)), **sizes)
    tiny.assert_close(ours, theirs, BOUND)
    inputs = dict(input_ids=tiny.batch((1, 300))["input_ids"])
    short, wide = (tiny.logits(make(**{**sizes, "sliding_window": width}), inputs) for width in (128, 512))
    assert tiny.distance(short, wide) > 10 * BOUND


def test_frozen_sinks():
    def freeze(model):
        for layer in model.model.layers:
            layer.self_attn.sinks.requires_grad_(False)

    theirs, ours = both(tiny.batch(SHAPE), freeze)
    assert not any(name.endswith("sinks") for name in ours[1])
    tiny.assert_close(ours, theirs, BOUND)


@pytest.mark.parametrize("side", [1, -1], ids=["left", "right"])
def test_padding_changes_no_row(side):
    tegula.apply(model_type="gpt_oss")
    model, batch = make(), tiny.batch((2, 20), padding=(side * 6, 0))
    ids, mask = batch["input_ids"], batch["attention_mask"]
    kept = mask[0].bool()
    padded = tiny.logits(model, dict(input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)))
    alone = tiny.logits(model, dict(input_ids=ids[:1, kept]))
    assert tiny.distance(padded[:1, kept], alone) < 1e-5


def packed_rows():
    """(three rows, the same in one row), with labels that never ask for the next row's first token."""
    rows = tiny.batch((3, 11))["input_ids"]
    labels = rows.clone()
    labels[:, 0] = -100
    places = torch.arange(11, device=rows.device).repeat(3)[None]
    packed = dict(input_ids=rows.reshape(1, -1), labels=labels.reshape(1, -1), position_ids=places, use_cache=False)
    return dict(input_ids=rows, labels=labels), packed


def test_a_packed_row_trains_what_its_sequences_do():
    tegula.apply(model_type="gpt_oss")
    model, (apart, together) = make(), packed_rows()
    tiny.assert_close(tiny.loss_and_gradients(model, together), tiny.loss_and_gradients(model, apart), BOUND)


def test_packed_sequences_do_not_see_each_other():
    """transformers gives no positions to the masks of this model, so its packed sequences do."""
    tegula.apply(model_type="gpt_oss")
    model, (_, packed) = make(), packed_rows()
    rows = packed["input_ids"].reshape(3, 11)
    apart, together = tiny.logits(model, dict(input_ids=rows)), tiny.logits(model, packed)
    assert tiny.distance(together.reshape(apart.shape), apart) < 1e-5
    tegula.reset()
    leaking = tiny.logits(make(), packed)
    assert tiny.distance(leaking.reshape(apart.shape), apart) > 1e-3


@pytest.mark.parametrize("cache", [None, "static"])
def test_greedy_text(cache):
    ids = tiny.batch((2, 9))["input_ids"]
    how = dict(max_new_tokens=12, do_sample=False, cache_implementation=cache)
    theirs = make().eval().generate(ids, **how)
    tegula.apply(model_type="gpt_oss")
    assert torch.equal(make().eval().generate(ids, **how), theirs)


def test_named_attention():
    theirs = tiny.loss_and_gradients(make(), tiny.batch(SHAPE, padding=(7, 0)))
    tegula.apply(model_type="gpt_oss")
    model = make(attn_implementation="tegula")
    tiny.assert_close(tiny.loss_and_gradients(model, tiny.batch(SHAPE, padding=(7, 0))), theirs, BOUND)
    assert tiny.served(model) == {"tegula"}


class Largest(TorchDispatchMode):
    """Remembers whether a tensor had an axis of queries and one of keys."""

    def __init__(self, tokens):
        super().__init__()
        self.tokens, self.square = tokens, False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tuple(tensor.shape[-2:]) == (self.tokens, self.tokens):
                self.square = True
        return result


@pytest.mark.parametrize("patch", [False, True])
def test_no_matrix_of_queries_and_keys(patch):
    if patch:
        tegula.apply(model_type="gpt_oss")
    model = make().eval()
    with torch.no_grad(), Largest(SHAPE[1]) as seen:
        model(input_ids=tiny.batch(SHAPE)["input_ids"])
    assert seen.square is not patch


def test_weights_of_attention_come_from_transformers():
    inputs = dict(tiny.batch(SHAPE, padding=(7, 0)), output_attentions=True)
    theirs = make()(**inputs)
    tegula.apply(model_type="gpt_oss")
    ours = make()(**inputs)
    assert tiny.distance(ours.loss[None], theirs.loss[None]) < BOUND
    for mine, stock in zip(ours.attentions, theirs.attentions, strict=True):
        assert tiny.distance(mine, stock) < BOUND


def test_dropout_and_replaced_attention_stay(monkeypatch):
    tegula.apply(model_type="gpt_oss")
    model = make(attention_dropout=0.5)
    model(**tiny.batch(SHAPE))
    assert "layers.0.self_attn has dropout" in str(tegula.report(model))
    assert tiny.served(model) == {None}
    monkeypatch.setattr(modelling, "eager_attention_forward", lambda *args, **kwargs: None)
    assert "another function is in the place of eager_attention_forward" in str(tegula.report(make()))


@pytest.mark.parametrize("wrap", [lambda forward: lambda *args, **kwargs: forward(*args, **kwargs), functools.partial])
def test_an_attention_of_others_stays(wrap):
    inputs = tiny.batch(SHAPE, padding=(7, 0))

    def change(model):
        attention = model.model.layers[0].self_attn
        attention.forward = wrap(attention.forward)

    theirs, ours = both(inputs, change)
    tiny.assert_close(ours, theirs, BOUND)
    model = make()
    change(model)
    assert "layers.0.self_attn runs another forward" in str(tegula.report(model))


def test_a_replaced_attention_may_be_any_callable(monkeypatch):
    tegula.apply(model_type="gpt_oss")
    model, inputs = make(), tiny.batch(SHAPE)
    expected = model(**inputs).loss
    monkeypatch.setattr(modelling, "eager_attention_forward", functools.partial(modelling.eager_attention_forward))
    assert torch.allclose(model(**inputs).loss, expected, rtol=1e-5)
    assert "another function is in the place of eager_attention_forward" in str(tegula.report(model))


@pytest.mark.parametrize("weight_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("residual", [False, True])
def test_norms_round_where_the_class_rounds(weight_dtype, residual):
    torch.manual_seed(3)
    x, h = torch.randn(2, 7, 64).bfloat16(), torch.randn(2, 7, 64).bfloat16()
    norm = modelling.GptOssRMSNorm(64, 1e-5)
    norm.weight.data = torch.randn(64).to(weight_dtype)
    with torch.no_grad():
        theirs = norm(x + h if residual else x)
        tegula.apply(model_type="gpt_oss")
        ours = norm((x, h) if residual else x)
    assert ours.dtype == theirs.dtype == torch.bfloat16
    assert torch.equal(ours, theirs)


def test_report_and_reset():
    model, inputs = make(), tiny.batch(SHAPE)
    before = tiny.loss_and_gradients(model, inputs)
    tegula.apply(model_type="gpt_oss")
    tiny.loss_and_gradients(model, inputs)
    text = str(tegula.report(model))
    for line in ("linear_cross_entropy in training", "masks as ranges of keys", "tegula: rope, attention", "tegula: add_rms_norm"):
        assert line in text
    tegula.reset()
    after = tiny.loss_and_gradients(model, inputs)
    assert all(torch.equal(after[1][name], before[1][name]) for name in before[1])


def test_verify(capsys):
    errors = tegula.verify(make(), tiny.batch(SHAPE))
    assert max(error.tegula for error in errors) < BOUND
    assert "rms_norm_gpt_oss" in capsys.readouterr().out
