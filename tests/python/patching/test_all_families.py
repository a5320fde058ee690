"""`attn_implementation="tegula"` in every family of transformers, as tiny models with random weights, against "eager".

A family is skipped, by name and with the reason, if stock transformers cannot build or call its tiny model."""

import os

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import ast  # noqa: E402
import copy  # noqa: E402

import placed  # noqa: E402
import tiny_families as tiny  # noqa: E402
import torch  # noqa: E402

from tegula.patching import attention  # noqa: E402

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("fast_everywhere")]
tegula.register_attention()
F32 = 1e-5
PADDING = {"none": None, "left": (0, 6), "right": (0, -6)}

# What neither Tegula nor PyTorch's attention computes: the error names it.
REFUSED = {
    "axk2": "indices", "deepseek_v32": "indices", "glm_moe_dsa": "indices", "hy_v4": "indices", "hy_v4_vl": "indices",
    "hy_v4_vl_text": "indices", "mistral_large4": "indices", "mistral_large4_text": "indices",
    "deepseek_v4": "sinks", "inkling2_text": "sinks", "inkling2_loop_text": "sinks",
}  # fmt: skip

# Their other layers, or what they pool, read the padding, for which "eager" attention has a mean of all values and others
# have 0.
READS_PADDING = ("aimv2", "metaclip_2", "recurrent_gemma")

tried = set()


def stock(model_type, run):
    """run(), or the test is skipped: the tiny model is not one that transformers can build or call."""
    try:
        return run()
    except Exception as error:
        pytest.skip(f"{model_type}: {type(error).__name__}: {' '.join(str(error).split())[:120]}")


def inputs_for(model, padding=None):
    """What stock transformers takes of tokens, an image, or both."""
    model_type = model.config.model_type
    if model.main_input_name not in ("input_ids", "pixel_values"):
        pytest.skip(f"{model_type}: its input is {model.main_input_name}")
    pixels = torch.randn(2, getattr(model.config, "num_channels", 3), 16, 16, generator=torch.Generator().manual_seed(1))
    image = dict(pixel_values=placed.to_device(pixels))
    tokens = tiny.ids_of((2, 17), padding)
    if model.config.is_encoder_decoder:
        tokens["decoder_input_ids"] = tokens["input_ids"][:, :9]
    model.set_attn_implementation("eager")
    for inputs in (tokens, image, {**tokens, **image}):
        try:
            first_output(model, inputs)
            return inputs
        except Exception as error:
            first = error if inputs is tokens else first  # noqa: F821
    return stock(model_type, lambda: raise_(first))


def raise_(error):
    raise error


def first_output(model, inputs):
    torch.manual_seed(0)  # noise of some experts and codebooks
    with torch.no_grad():
        output = model(**inputs)[0]
    return output if isinstance(output, torch.Tensor) else output[0]  # the first of a backbone's maps


def assert_close(model, inputs, ours, theirs):
    """Within F32, or twice the rounding of "eager" attention where the model amplifies it."""
    mask = inputs.get("attention_mask")
    if mask is not None and not model.config.is_encoder_decoder and theirs.shape[:2] == mask.shape:
        ours, theirs = ours[mask.bool()], theirs[mask.bool()]
    found = tiny.distance(ours, theirs)
    if found > F32:  # f64 without padding: rows of padding are NaN, since eager computes its softmax in f32
        model.set_attn_implementation("eager")
        inputs = {name: value for name, value in inputs.items() if name != "attention_mask"}
        exact = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
        rounding = tiny.distance(first_output(model, inputs), first_output(copy.deepcopy(model).double(), exact))
        assert found <= 2 * rounding, (found, rounding)


@pytest.fixture(scope="module")
def models():
    """The last model that was built: the tests of a family follow each other."""
    made = {}

    def get(model_type):
        key = model_type, placed.device
        if key not in made:
            made.clear()
            made[key] = stock(model_type, lambda: tiny.make(model_type))
        return made[key]

    return get


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("model_type", tiny.families())
def test_forward(models, model_type, padding):
    model = models(model_type)
    inputs = inputs_for(model, PADDING[padding])
    if padding != "none" and "attention_mask" not in inputs:
        pytest.skip("images have no padding")
    reference = "sdpa" if model_type in READS_PADDING else "eager"
    model.set_attn_implementation(reference)
    theirs = stock(model_type, lambda: first_output(model, inputs))
    model.set_attn_implementation("tegula")
    attention._last_call.clear()
    if model_type in REFUSED:
        with pytest.raises(NotImplementedError, match=f"attention: {REFUSED[model_type]}"):
            first_output(model, inputs)
        return
    ours = first_output(model, inputs)
    served = {attention.served_by(module) for module in list(attention._last_call)}
    if not served:
        pytest.skip(f"{model_type}: this class calls no attention function by name")
    assert_close(model, inputs, ours, theirs)
    tried.add(model_type)


WAYS = {
    "greedy": dict(),
    "static cache": dict(cache_implementation="static", disable_compile=True),
    "beams": dict(num_beams=2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model_type", tiny.families())
def test_generation(models, model_type, way):
    """With left padding, and a prompt longer than the window. A token may differ where two are as likely."""
    model = models(model_type)
    if not model.can_generate() or model_type in REFUSED:
        pytest.skip(f"{model_type}: does not generate")
    inputs = inputs_for(model, None if model_type in READS_PADDING else (0, 6))
    inputs.pop("decoder_input_ids", None)

    def run():
        torch.manual_seed(0)
        return model.generate(
            **inputs, max_new_tokens=5, min_new_tokens=5, do_sample=False, output_logits=True, output_scores=True,
            return_dict_in_generate=True,
            **WAYS[way],
        )  # fmt: skip

    model.set_attn_implementation("eager")
    theirs = stock(model_type, run)
    model.set_attn_implementation("tegula")
    attention._last_call.clear()
    ours = run()
    if not len(attention._last_call):
        pytest.skip(f"{model_type}: this class calls no attention function by name")
    start = ours.sequences.shape[1] - len(ours.logits)
    for step, (mine, other) in enumerate(zip(ours.logits, theirs.logits, strict=True)):
        if way == "beams" and step:
            break  # beams may change places
        if not torch.equal(ours.sequences[:, : start + step], theirs.sequences[:, : start + step]):
            break
        assert tiny.distance(mine, other) <= 5 * F32
    if way == "beams":
        assert torch.allclose(ours.sequences_scores, theirs.sequences_scores, atol=1e-4)


@pytest.mark.parametrize("model_type", tiny.families(interface=False))
def test_named_where_there_is_no_interface(model_type):
    """transformers takes any registered name while it loads a model: the classes that call no attention function by name
    refuse it, or they get the masks that they know."""
    expected = stock(model_type, lambda: tiny.make(model_type))
    inputs = inputs_for(expected, (0, 6))
    theirs = stock(model_type, lambda: first_output(expected, inputs))
    try:
        model = tiny.make(model_type, attn_implementation="tegula")
    except (KeyError, ValueError):
        return
    model.load_state_dict(expected.state_dict())
    assert_close(expected, inputs, first_output(model, inputs), theirs)


def eager_functions():
    for file in sorted(tiny.MODELS.glob("*/modeling_*.py")):
        text = file.read_text()
        if "ALL_ATTENTION_FUNCTIONS" in text:
            for node in ast.parse(text).body:
                if isinstance(node, ast.FunctionDef) and "eager_attention_forward" in node.name:
                    yield file.parent.name, node


def test_every_argument_of_eager_functions_is_known():
    """What the families' own functions read: an argument that is added in a newer version must not be overlooked."""
    common = {"module", "query", "key", "value", "query_states", "key_states", "value_states", "attention_mask"}
    common |= {"scaling", "dropout", "position_bias", "softcap", "sliding_window", *attention.UNKNOWN}
    attributes = {"num_key_value_groups", "training", "head_dim", "sinks"}  # sinks come as the argument s_aux, too
    for family, node in eager_functions():
        arguments = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        assert arguments <= common, (family, arguments - common)
        read = {
            each.attr for each in ast.walk(node)
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "module"
        }  # fmt: skip
        assert read <= attributes, (family, read - attributes)


def test_most_families_were_tried():
    if not tried:
        pytest.skip("test_forward did not run in this process")
    assert len(tried) >= 0.5 * len(tiny.families()), sorted(set(tiny.families()) - tried)
