"""What apply, apply_to_model and reset change and put back; the report, verify, the kernels package."""

import os
import pathlib
import subprocess
import sys

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402
from transformers.models.gpt_oss import modeling_gpt_oss  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402
from transformers.models.qwen2 import modeling_qwen2  # noqa: E402
from transformers.models.qwen3 import modeling_qwen3  # noqa: E402

from tegula.patching.stacked_experts import STACKED, WHY_NOT_STACKED  # noqa: E402

pytestmark = pytest.mark.usefixtures("device", "stock_afterwards")
OPS = ["rms_norm", "rope", "swiglu", "fused_linear_cross_entropy", "attention"]
FILES = (modeling_qwen3, modeling_qwen2, modeling_llama)


def everything():
    """Every attribute of the modelling files and of the classes in them."""
    state = {}
    for file in FILES:
        for name, value in vars(file).items():
            state[file, name] = value
            if isinstance(value, type):
                state.update({(file, name, attribute): inner for attribute, inner in vars(value).items()})
    return state


def changes(before, after):
    return {".".join(key[1:]) for key in before.keys() | after.keys() if before.get(key) is not after.get(key)}


def test_importing_is_light():
    """Nothing but the extension; PyTorch and transformers when they are needed."""
    code = "import sys, tegula; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules], dir(tegula))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith("[] ") and "'apply'" in out and "'verify'" in out


def test_names_in_their_order():
    qwen3 = [f"{op}_qwen3" for op in OPS]
    every = [f"{op}_{family}" for family in ("qwen3", "qwen2", "llama") for op in OPS]
    experts = ["experts"] if STACKED else []
    for family, dense in (("gpt_oss", False), ("qwen3_moe", True), ("mixtral", False)):
        every += [f"{op}_{family}" for op in [*OPS, *experts] if dense or op != "swiglu"]
    assert tegula.list_patches() == every and tegula.get_patched_ops() == []
    assert tegula.apply(model_type="qwen3") == qwen3
    assert tegula.apply(model_type="qwen3") == qwen3  # again: the same
    assert tegula.apply(model_type="llama", rope=False, attention=False) == ["rms_norm_llama", "swiglu_llama", "fused_linear_cross_entropy_llama"]
    assert tegula.get_patched_ops() == qwen3 + ["rms_norm_llama", "swiglu_llama", "fused_linear_cross_entropy_llama"]
    assert tegula.apply() == every and tegula.get_patched_ops() == every
    assert tegula.reset(["swiglu_qwen3", "rope_qwen2"]) == ["swiglu_qwen3", "rope_qwen2"]
    assert tegula.reset(["swiglu_qwen3"]) == []
    assert tegula.reset("rms_norm_llama") == ["rms_norm_llama"]
    assert tegula.reset() == [name for name in every if name not in ("swiglu_qwen3", "rope_qwen2", "rms_norm_llama")]
    assert tegula.reset() == [] and tegula.get_patched_ops() == []


def test_what_changes_and_comes_back():
    before = everything()
    for _ in range(2):
        tegula.apply(model_type="qwen3")
        classes = ("RMSNorm", "Attention", "DecoderLayer", "Model", "MLP", "ForCausalLM")
        masks = {"Qwen3ForCausalLM.create_masks_for_generate"}  # which the class had none of
        assert changes(before, everything()) == {f"Qwen3{name}.forward" for name in classes} | masks
        tegula.reset(["rms_norm_qwen3", "attention_qwen3"])
        assert changes(before, everything()) == {f"Qwen3{name}.forward" for name in ("Attention", "MLP", "ForCausalLM")}
        tegula.apply()
        assert len(changes(before, everything())) == 21
        tegula.reset()
        assert changes(before, everything()) == set()


@pytest.mark.parametrize("order", [["rms_norm", "rope"], ["rope", "rms_norm"]])
def test_norms_and_rope_own_the_heads_together(order):
    model = tiny.make()
    flags = [{op: op in order[: count + 1] for op in OPS} for count in range(2)]
    tegula.apply_to_model(model, **flags[0])
    assert "qk_norm_rope" not in str(tegula.report(model))
    tegula.apply_to_model(model, **{op: op == order[1] for op in OPS})
    assert "qk_norm_rope" in str(tegula.report(model))
    tegula.reset(f"{order[0]}_qwen3")
    assert "qk_norm_rope" not in str(tegula.report(model))


def test_one_model_of_two():
    first, second = tiny.make(), tiny.make()
    before, inputs = everything(), tiny.batch()
    names = tegula.apply_to_model(first)
    assert names == [f"{op}_qwen3" for op in OPS] == tegula.get_patched_ops()
    assert tegula.apply_to_model(first) == names
    assert changes(before, everything()) == set()
    assert not any("forward" in vars(module) for module in second.modules())
    assert first(**inputs).logits is None and second(**inputs).logits is not None
    assert {row.runs for row in tegula.report(second)} == {"transformers"}
    tegula.apply()  # classes beneath a patched model
    tegula.reset()
    for module in first.modules():
        assert not {"forward", "_tegula", "create_masks_for_generate"} & set(vars(module))


def test_for_a_while():
    model = tiny.make()
    with tegula.patched(model, rms_norm=False) as names:
        assert names == [f"{op}_qwen3" for op in OPS[1:]] == tegula.get_patched_ops()
        with pytest.raises(KeyError), tegula.patched(model) as inner:
            assert len(inner) == 5 == len(tegula.get_patched_ops())
            raise KeyError
        assert tegula.get_patched_ops() == names
    assert tegula.get_patched_ops() == [] and not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("call, exception, message", [
    (lambda: tegula.apply(rmsnorm=True), TypeError, "apply: expected keywords of rms_norm, rope, swiglu, fused_linear_cross_entropy, attention, experts, got 'rmsnorm'"),
    (lambda: tegula.apply(model_type="gpt2"), ValueError, "apply: model_type: expected one of qwen3, qwen2, llama, gpt_oss, qwen3_moe, mixtral, got 'gpt2'"),
    (lambda: tegula.apply_to_model(torch.nn.Linear(2, 2)), TypeError, "apply_to_model: model: expected a model of transformers, got Linear"),
    (lambda: tegula.apply_to_model(tiny.make(), moe=True), TypeError, "apply_to_model: expected keywords of .*, got 'moe'"),
    (lambda: tegula.reset(["rms_norm"]), ValueError, "reset: names: expected some of rms_norm_qwen3, .*, got 'rms_norm'"),
    (lambda: tegula.report(torch.nn.Linear(2, 2)), ValueError, "report: model: expected a model with patches, got model_type None"),
    (lambda: tegula.register_patch("rope_qwen3", "", "math", "pi", print), ValueError, "expected one that is not taken, got 'rope_qwen3'"),
    (lambda: tegula.register_patch("a", "", "no_such_module", "f", print), ValueError, "expected a module, got 'no_such_module'"),
    (lambda: tegula.register_patch("a", "", "math", "pi", 3), TypeError, "expected a class or function, got 3"),
    (lambda: tegula.unregister_patch("rope_qwen3"), ValueError, "unregister_patch: name: expected one of none, got 'rope_qwen3'"),
])  # fmt: skip
def test_errors(call, exception, message):
    with pytest.raises(exception, match=message):
        call()
    assert tegula.get_patched_ops() == []


def test_failures_of_kernels_are_raised():
    model = tiny.make()
    tegula.apply_to_model(model)
    bad = tiny.batch()
    bad["labels"][1, 4] = 97
    with pytest.raises(ValueError, match=r"linear_cross_entropy_\w+: targets\[20\]: expected 0 to 96, got 97"):
        model(**bad)
        tegula.check()  # where a GPU finds it


def test_patches_of_users(monkeypatch):
    from tegula.patching import patches

    monkeypatch.setattr(patches, "_patches", {})
    calls = []

    def forward(self, x):
        calls.append(self)
        return x * 0

    def rope(q, k, cos, sin, unsqueeze_dim=1):
        calls.append("rope")
        return q, k

    tegula.register_patch("zero_mlp", "no MLP", modeling_qwen3.__name__, "Qwen3MLP.forward", forward, models=["qwen3"], op="zero")
    tegula.register_patch("no_rope", "", modeling_llama.__name__, "apply_rotary_pos_emb", rope, priority=20)
    assert tegula.list_patches()[-2:] == ["no_rope", "zero_mlp"]
    message = r"zero_mlp: .*Qwen3MLP\.forward: expected a patch with a priority of its own, got 10 as swiglu_qwen3 has"
    with pytest.raises(ValueError, match=message):
        tegula.apply(model_type="qwen3")
    assert tegula.get_patched_ops() == [] and modeling_llama.apply_rotary_pos_emb is not rope
    model, stock = tiny.make(), modeling_llama.apply_rotary_pos_emb
    assert "no_rope" not in tegula.apply_to_model(model, swiglu=False)  # a function is no one model's
    model(**tiny.batch())
    assert len(calls) == 3
    assert "zero_mlp" in tegula.apply(swiglu=False) and "no_rope" in tegula.get_patched_ops()
    assert tegula.reset("zero_mlp") == ["zero_mlp"] and "zero_mlp" not in tegula.apply(zero=False)
    assert modeling_llama.apply_rotary_pos_emb is rope
    assert tegula.reset("no_rope") == ["no_rope"] and modeling_llama.apply_rotary_pos_emb is stock


@pytest.mark.parametrize("by_class", [True, False])
def test_priority_decides_between_patches(monkeypatch, by_class):
    from tegula.patching import patches

    monkeypatch.setattr(patches, "_patches", {})
    model, place = tiny.make(), (modeling_qwen3.__name__, "Qwen3MLP.forward")
    before = everything()

    def apply(**flags):
        return tegula.apply(model_type="qwen3", **flags) if by_class else tegula.apply_to_model(model, **flags)

    def runs():
        function = model.model.layers[0].mlp.forward.__func__
        return {zero: "zero", one: "one"}.get(function, getattr(function, "tegula_kind", "stock"))

    def zero(self, x):
        return x * 0

    def one(self, x):
        return x * 0 + 1

    tegula.register_patch("low", "", *place, zero, priority=9)
    tegula.register_patch("high", "", *place, one, priority=11)
    names = apply()
    assert runs() == "one" and "high" in names and not {"low", "swiglu_qwen3"} & set(names)
    assert names == tegula.get_patched_ops()
    tegula.unregister_patch("high")
    assert runs() == "mlp" and "high" not in tegula.list_patches()
    assert tegula.get_patched_ops() == [f"{op}_qwen3" for op in OPS]
    assert tegula.reset("swiglu_qwen3") == ["swiglu_qwen3"] and runs() == "zero"
    tegula.register_patch("equal", "", *place, one, priority=9)
    with pytest.raises(ValueError, match=r"equal: .*MLP\.forward: expected a patch with .*, got 9 as low has, .*unregister_patch"):
        apply(swiglu=False)
    assert runs() == "zero"
    tegula.unregister_patch("low")
    assert runs() == "stock" and "equal" in apply(swiglu=False) and runs() == "one"
    tegula.reset()
    assert runs() == "stock" and changes(before, everything()) == set()


def test_a_later_patch_of_others_is_not_undone():
    tegula.apply(model_type="llama")
    ours = modeling_llama.LlamaMLP.forward
    modeling_llama.LlamaMLP.forward = lambda self, x: x
    try:
        with pytest.raises(RuntimeError, match="LlamaMLP.forward: expected Tegula's replacement, got one that was put"):
            tegula.reset()
        assert "swiglu_llama" in tegula.get_patched_ops()
    finally:
        modeling_llama.LlamaMLP.forward = ours


def test_report():
    model = tiny.make()
    assert all(row.note == "not applied" for row in tegula.report(model))
    tegula.apply()
    rows = {row.modules: row for row in tegula.report(model)}
    assert rows["model.layers.*.self_attn"].runs == "tegula: qk_norm_rope, attention"
    assert rows["model.layers.*"].runs == "tegula: add_rms_norm"
    assert len(tegula.report(model)) == 3 + 3 * 7  # the model, its trunk and last norm; seven modules a layer
    assert "model.layers.*.mlp (3)" in str(tegula.report(model))
    gelu = tiny.make("llama", hidden_act="gelu")
    inputs = tiny.batch()
    assert "its activation is GELUActivation" in str(tegula.report(gelu))
    ours = tiny.loss_and_gradients(gelu, inputs)
    tegula.reset()
    tiny.assert_close(ours, tiny.loss_and_gradients(gelu, inputs), 1e-5)


def test_forwards_that_others_put_into_modules():
    """They captured the original: a patch of classes does not reach them, one of the model leaves them; both say so."""
    model, inputs = tiny.make("llama"), tiny.batch()
    mlp = model.model.layers[0].mlp
    mlp.forward = mlp.forward  # a bound method, as wrappers keep it
    captured = mlp.forward.__func__
    mlp.forward = lambda x: captured(mlp, x)
    want = model(**inputs).loss
    tegula.apply()
    assert tiny.distance(model(**inputs).loss, want) <= 1e-5
    note = [row.note for row in tegula.report(model) if row.modules.endswith("mlp")]
    assert note[1:] == ["", ""] and "test_patches" in [row.runs for row in tegula.report(model) if row.modules.endswith("mlp")][0]
    tegula.reset()
    tegula.apply_to_model(model)
    assert tiny.distance(model(**inputs).loss, want) <= 1e-5
    assert vars(mlp)["forward"].__name__ == "<lambda>"


def test_verify(capsys):
    model, inputs = tiny.make(), tiny.batch()
    result = tegula.verify(model, inputs)
    assert capsys.readouterr().out == f"{result}\n" and "difference from PyTorch in float32, of rms_norm_qwen3, " in str(result)
    assert result.names == [f"{op}_qwen3" for op in OPS] and len(result) == 1 + len(list(model.parameters()))
    assert all(error.tegula <= 1e-5 < error.pytorch for error in result[1:])
    tegula.apply(swiglu=False)
    again = tegula.verify(model.bfloat16(), inputs)
    assert "swiglu_qwen3" not in again.names and "rope_llama" not in again.names
    assert all(error.tegula > 0 for error in again[1:])
    assert tegula.get_patched_ops() == [n for n in tegula.list_patches() if not n.startswith("swiglu_")] and model(**inputs).logits is None
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(ValueError, match="verify: batch: expected labels"):
        tegula.verify(model, dict(input_ids=inputs["input_ids"]))


def test_verify_at_a_prompt(capsys):
    """The table once: the call prints it, and the prompt shows a line about what it returned."""
    import code

    console = code.InteractiveConsole({"tegula": tegula, "model": tiny.make(num_hidden_layers=1), "inputs": tiny.batch()})
    console.push("tegula.verify(model, inputs)")
    out = capsys.readouterr().out
    assert out.count("difference from PyTorch") == 1
    assert out.splitlines()[-1].startswith("Verification(loss: ") and "largest of 14 gradients: " in out.splitlines()[-1]


def test_warm_up_runs_every_op_that_has_gradients():
    seen = set()

    class Record(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.add(function.name().removeprefix("tegula::"))
            return function(*args, **(kwargs or {}))

    with Record():
        tegula.warmup_all_kernels(placed.device)
    wanted = {row["name"] for row in tegula._core.ops() if row["name"].endswith("_bwd")}
    assert wanted <= seen and {name.replace("_bwd", "_fwd") for name in wanted} <= seen


def test_measuring_leaves_the_random_numbers_alone(monkeypatch):
    from tegula import warm_up

    monkeypatch.setattr(warm_up, "ROWS", 4)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: type("Stream", (), {"cuda_stream": 0}))
    monkeypatch.setattr(warm_up._core, "tune", lambda *arguments: None)
    before = torch.get_rng_state()
    warm_up.measure_products(torch.device("cpu"), [(8, 16)])
    assert torch.equal(torch.get_rng_state(), before)


def test_tables_of_measured_products_are_deleted(monkeypatch, tmp_path):
    monkeypatch.delenv("TEGULA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tegula.clear_autotune_cache() == 0
    (tmp_path / "tegula").mkdir()
    for name in ("products-0123456789abcdef.txt", "products-0123456789abcdef.txt.Ab3xYz", "corpus.bin"):
        (tmp_path / "tegula" / name).write_text("")
    assert tegula.clear_autotune_cache() == 2
    assert [path.name for path in (tmp_path / "tegula").iterdir()] == ["corpus.bin"]


# ---- the kernels package ----


def kernelized(model, monkeypatch):
    kernels = pytest.importorskip("kernels")
    mode = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE
    # What transformers' decorator sets, which it does beside certain versions of kernels alone.
    monkeypatch.setattr(modeling_qwen3.Qwen3RMSNorm, "kernel_layer_name", "RMSNorm", raising=False)
    with kernels.use_kernel_mapping(tegula.hub_layers(), inherit_mapping=False):
        return kernels.kernelize(model, mode=mode)


def test_layers_for_kernels(monkeypatch):
    model, inputs = tiny.make(dtype=torch.bfloat16), tiny.batch()
    stock = tiny.loss_and_gradients(model, inputs)
    kernelized(model, monkeypatch)
    runs = {row.modules.split(".")[-1]: row.runs for row in tegula.report(model)}
    assert runs["input_layernorm"] == "tegula.patching.hub.RMSNorm.forward"
    ours = tiny.loss_and_gradients(model, inputs)
    assert abs(ours[0] - stock[0]) <= 2**-11 * stock[0]
    tegula.apply_to_model(model)  # keeps what kernelize put there
    assert "norm runs another forward" in str(tegula.report(model))
    assert abs(tiny.loss_and_gradients(model, inputs)[0] - stock[0]) <= 2**-11 * stock[0]


def test_a_rope_of_kernels(monkeypatch):
    """The function of the modelling file as a module, as transformers' decorators make it, kernelized."""
    kernels = pytest.importorskip("kernels", minversion="0.16", reason="earlier ones replace no functions")
    from tegula.patching.hub import Repository

    stock = getattr(modeling_qwen3.apply_rotary_pos_emb, "forward", modeling_qwen3.apply_rotary_pos_emb)

    class Rotation(torch.nn.Module):
        has_backward = can_torch_compile = True

        def forward(self, q, k, cos, sin, unsqueeze_dim=1):
            return stock(q, k, cos, sin, unsqueeze_dim)

    function = kernels.use_kernel_forward_from_hub("rotary_pos_emb")(stock)
    monkeypatch.setattr(modeling_qwen3, "apply_rotary_pos_emb", function)
    model = tiny.make()
    for layer in model.model.layers:
        layer.self_attn._kernel_funcs = {"apply_rotary_pos_emb": function}
    name = "transformers.models.qwen3.modeling_qwen3.apply_rotary_pos_emb"
    assert name not in {row.modules for row in tegula.report(model)}
    mode = kernels.Mode.TRAINING
    with kernels.use_kernel_mapping({"rotary_pos_emb": {placed.device: {mode: Repository(Rotation)}}}, inherit_mapping=False):
        kernels.kernelize(model, mode=mode)

    def row():
        return {row.modules: row for row in tegula.report(model)}[name]

    assert "Rotation.forward" in row().runs and row().note == "put there by kernelize; called by 3 modules"
    tegula.apply_to_model(model)
    assert row().note == "put there by kernelize; not called: rope is Tegula's"


def test_layers_for_kernels_round_as_their_module():
    from tegula.patching.hub import RMSNorm, rounding_of

    assert rounding_of(modeling_qwen3.Qwen3RMSNorm) == rounding_of(modeling_llama.LlamaRMSNorm) == "llama"
    assert rounding_of(modeling_gpt_oss.GptOssRMSNorm) == "gpt_oss"
    x = placed.randn(64, 96).bfloat16()
    for cls in (modeling_qwen3.Qwen3RMSNorm, modeling_gpt_oss.GptOssRMSNorm):
        norm = placed.to_device(cls(96).bfloat16())
        torch.nn.init.normal_(norm.weight)
        want = norm(x)
        ours = RMSNorm.forward(norm, x)
        # On a GPU the last bit of a sum of squares may decide between two numbers; another rounding moves one in ten.
        assert (ours != want).sum() <= (0 if placed.device == "cpu" else 1e-3 * want.numel())

    class Other(torch.nn.Module):
        def forward(self, x):
            return x * self.weight

    with pytest.raises(NotImplementedError, match="Other: expected the rounding of Llama or GPT-OSS, got another"):
        rounding_of(Other)


@pytest.mark.cpu("they are written for the CPU")
@pytest.mark.parametrize(("page", "heading"), [
    pytest.param("README.md", "## From Python", marks=pytest.mark.skipif(not STACKED, reason=WHY_NOT_STACKED)),
    ("docs/python.md", "## Apply"),
    ("docs/python.md", "## Quantised weights"),
])  # fmt: skip
def test_the_examples_of_the_pages(capsys, page, heading):
    text = (pathlib.Path(__file__).resolve().parents[3] / page).read_text().split(heading)[1]
    exec(text.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out == text.split("```text\n")[1].split("```")[0]
