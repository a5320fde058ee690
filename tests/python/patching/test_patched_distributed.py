"""Patched models under DDP and FSDP2 in two processes, and spread over devices by accelerate.

The processes are started once and run every case below; a test says what became of its case."""

import functools
import os
import traceback
import warnings

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("TEGULA_TORCH=none: no live models", allow_module_level=True)
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
fsdp = pytest.importorskip("torch.distributed.fsdp", reason="a PyTorch without torch.distributed")

accelerate = pytest.importorskip("accelerate", reason="without accelerate: no device_map")
import placed  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Shard, distribute_tensor  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tegula.patching import stacked_experts  # noqa: E402
from tegula.patching.stacked_experts import STACKED  # noqa: E402

F32 = 1e-5
PROCESSES = 2
OPS = ("rms_norm", "rope", "swiglu", "fused_linear_cross_entropy", "attention")
PADDING = [0, 4, 0, 0]  # so the processes count different numbers of tokens
CASES = {}


def case(function, *arguments):
    CASES[" ".join((function.__name__, *arguments))] = functools.partial(function, *arguments)


# ---- what runs in the processes ----


def sharded(*units):
    """A wrapper by fully_shard: `units` names modules, lists of modules that share one, or "layers"; then the root."""

    def wrap(model):
        mesh = init_device_mesh("cpu", (PROCESSES,))
        for unit in units:
            for module in model.model.layers if unit == "layers" else [unit(model)]:
                fsdp.fully_shard(module, mesh=mesh)
        return fsdp.fully_shard(model, mesh=mesh)

    return wrap


def hybrid(model):
    """Each process has all of it, by a mesh of which one axis replicates."""
    mesh = init_device_mesh("cpu", (PROCESSES, 1), mesh_dim_names=("replicate", "shard"))
    return fsdp.fully_shard(model, mesh=mesh)


WRAPPERS = {
    "ddp": DistributedDataParallel,
    "root": sharded(),
    "layers": sharded("layers"),
    "head": sharded("layers", lambda model: model.lm_head),
    "norm and head": sharded("layers", lambda model: [model.model.norm, model.lm_head]),
    "hybrid": hybrid,
}
ORDERS = {
    "classes before": (lambda model: tegula.apply(model_type=model.config.model_type), None),
    "model before": (tegula.apply_to_model, None),
    "classes after": (None, lambda model: tegula.apply()),
    "model after": (None, tegula.apply_to_model),
}


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def share_of(inputs):
    """This process's rows."""
    return {name: value.chunk(PROCESSES)[dist.get_rank()] for name, value in inputs.items()}


def counted(inputs):
    return int((inputs["labels"][:, 1:] != -100).sum())


def loss_and_gradients(model, inputs):
    """Of the whole batch, by a wrapped model: gradients come as means over the processes."""
    model.zero_grad()
    out = model(**share_of(inputs), num_items_in_batch=counted(inputs))
    (out.loss * PROCESSES).backward()
    loss = out.loss.detach().clone()
    dist.all_reduce(loss)
    named = unwrapped(model).named_parameters()
    return loss, {name: whole(p.grad).clone() for name, p in named if p.grad is not None}, out


def unwrapped(model):
    return model.module if isinstance(model, DistributedDataParallel) else model


@functools.cache
def stock(variant):
    model, inputs = tiny.make(variant), tiny.batch((4, 17), padding=PADDING)
    with tegula.patching.patches.suspended(model):
        return tiny.loss_and_gradients(model, inputs)


def prepared(variant, wrapper, order="model before", **sizes):
    before, after = ORDERS[order]
    model = tiny.make(variant, **sizes)
    family = model.config.model_type
    names = before(model) if before else None
    model = WRAPPERS[wrapper](model)
    names = after(model) if after else names
    assert {f"{op}_{family}" for op in OPS} <= set(names)
    return model


def loss_and_every_gradient(variant, wrapper, order):
    """Twice: what a forward leaves behind must not disturb the next."""
    inputs = tiny.batch((4, 17), padding=PADDING)
    want = stock(variant)
    model = prepared(variant, wrapper, order)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", r".*(CausalLM|Linear)\) returned a view tensor")
            *ours, out = loss_and_gradients(model, inputs)
        assert out.logits is None
        tiny.assert_close(ours, want, F32)
    check_report(model, wrapper)


def check_report(model, wrapper):
    rows = {row.modules: row for row in tegula.report(model)}
    assert rows["(model)"].runs == "tegula: linear_cross_entropy in training"
    assert ("FSDP gathers lm_head.weight for it" in rows["(model)"].note) == (wrapper != "ddp")
    assert "add_rms_norm between layers" in rows["model"].runs
    assert rows["model.layers.*.self_attn"].runs.startswith("tegula: ")
    if STACKED and "model.layers.*.mlp.experts" in rows:
        assert rows["model.layers.*.mlp.experts"].runs == "tegula: experts", rows
        assert rows["model.layers.*.mlp.gate"].runs == "tegula: topk_router", rows
    assert ("a unit of FSDP" in rows["model.layers.*"].note) == (wrapper in ("layers", "head", "norm and head"))
    if wrapper != "ddp":
        with pytest.raises(NotImplementedError, match="verify: model: expected a whole model, got a unit of FSDP"):
            tegula.verify(model, tiny.batch())


def check_checkpoints(model, variant, reentrant):
    """Each half of a layer runs twice, not three times by two checkpoints in each other."""
    inner, runs = unwrapped(model), []
    inner.gradient_checkpointing_enable(dict(use_reentrant=reentrant))
    inner.enable_input_require_grads()
    inner.model.layers[1].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
    tiny.assert_close(loss_and_gradients(model, tiny.batch((4, 17), padding=PADDING))[:2], stock(variant), F32)
    assert len(runs) == 2, len(runs)


def units_follow_their_class(variant, order):
    """FSDP makes a class of a layer once, with a copy of its forward: patches reach it and leave it all the same."""
    model = prepared(variant, "layers", order)
    check_checkpoints(model, variant, reentrant=True)
    assert len({type(layer) for layer in model.model.layers}) == 1
    assert all(row.runs != "transformers" for row in tegula.report(model)), tegula.report(model)
    again = WRAPPERS["layers"](tiny.make(variant))  # the class is there already
    assert ("tegula:" in str(tegula.report(again))) == order.startswith("classes")
    tegula.reset()
    for each in (model, again):
        assert "tegula:" not in str(tegula.report(each))
        tiny.assert_close(loss_and_gradients(each, tiny.batch((4, 17), padding=PADDING))[:2], stock(variant), F32)


# Each with a family of its own, which has not been in a unit before.
case(units_follow_their_class, "qwen3", "classes after")
case(units_follow_their_class, "llama", "classes before")
case(units_follow_their_class, "qwen2", "model after")
for wrapper in WRAPPERS:
    for order in ORDERS if wrapper in ("ddp", "layers") else ("classes after", "model before"):
        case(loss_and_every_gradient, "qwen3", wrapper, order)
for arguments in (
    ("qwen3 tied", "ddp", "model before"), ("qwen3 tied", "root", "classes after"),
    ("llama biases", "layers", "model after"), ("qwen2 window", "head", "model before"),
    ("qwen3_moe", "ddp", "model before"), ("qwen3_moe", "layers", "classes after"),
):  # fmt: skip
    case(loss_and_every_gradient, *arguments)


def checkpointing(wrapper, order):
    for reentrant in (True, False):
        check_checkpoints(prepared("qwen3", wrapper, order), "qwen3", reentrant)
        tegula.reset()


def logits_and_scores(wrapper):
    """Outside of training, where nothing is kept for a backward."""
    inputs = tiny.batch((4, 17), padding=PADDING)
    own = share_of(inputs)
    reference = tiny.make().train()
    plain = {name: own[name] for name in ("input_ids", "attention_mask")}
    with tegula.patching.patches.suspended(reference):
        want, want_loss = tiny.logits(reference, plain), reference(**own).loss.detach()
    tegula.apply_to_model(reference)
    scores = reference(**own, return_log_probs=True, return_token_accuracy=True)
    model = prepared("qwen3", wrapper)
    real = own["attention_mask"].bool()
    assert tiny.distance(tiny.logits(model, plain)[real], want[real]) <= F32
    with torch.no_grad():
        ours = model(**own, return_log_probs=True, return_token_accuracy=True)
        assert tiny.distance(model.eval()(**own, skip_logits=True).loss, want_loss) <= F32
    assert tiny.distance(ours.log_probs, scores.log_probs) <= F32
    assert ours.token_accuracy == scores.token_accuracy


def mixed_precision():
    """Weights gathered in bf16, sums of gradients in f32: no further from f32 than the stock model under the same."""
    inputs = tiny.batch((4, 17), padding=PADDING)
    exact, errors, losses = stock("qwen3"), {}, {}
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for kind in ("stock", "tegula"):
        model = tiny.make()
        for module in (*model.model.layers, model.lm_head, model):
            fsdp.fully_shard(module, mesh=init_device_mesh("cpu", (PROCESSES,)), mp_policy=policy)
        if kind == "tegula":
            tegula.apply_to_model(model)
        loss, gradients, _ = loss_and_gradients(model, inputs)
        errors[kind] = sum((gradients[name] - exact[1][name]).norm() for name in exact[1])
        losses[kind] = abs(loss - exact[0]) / exact[0]
        assert all(gradient.dtype == torch.float32 for gradient in gradients.values())
    assert 0 < errors["tegula"] <= 1.1 * errors["stock"], errors
    assert losses["tegula"] <= 2**-8, losses


def adamw_and_clipping(wrapper):
    """One step of AdamW behind clipping, by us and by PyTorch."""
    inputs, norms, params, factors = tiny.batch((4, 17), padding=PADDING), [], [], []
    for clip, kind in ((torch.nn.utils.clip_grad_norm_, torch.optim.AdamW), (tegula.ops.clip_grad_norm_, tegula.optim.AdamW)):
        model = prepared("qwen3", wrapper)
        loss_and_gradients(model, inputs)
        grads = [p.grad for p in model.parameters()]
        factors.append(tegula.ops.global_norm(grads, max_norm=0.5)[1])
        norms.append(whole(clip(model.parameters(), 0.5)))
        before = [whole(p).detach().clone() for p in model.parameters()]
        kind(model.parameters(), lr=1e-3, weight_decay=0.1).step()
        params.append([whole(p).detach() for p in model.parameters()])
    exact = torch.stack([gradient.norm() for gradient in stock("qwen3")[1].values()]).norm()
    assert exact > 0.5 and all(tiny.distance(norm, exact) <= F32 for norm in norms)
    assert all(tiny.distance(factor[0], 0.5 / exact) <= F32 for factor in factors)
    for start, theirs, ours in zip(before, *params):
        assert (theirs - start).abs().max() > 1e-4
        assert (theirs - ours).abs().max() <= 1e-6


def a_head_in_parts_by_another():
    """Tensor parallel, not FSDP: nothing gathers the weight, so the loss comes from logits, and the report says so."""
    model = tiny.make()
    tegula.apply_to_model(model)
    mesh = init_device_mesh("cpu", (PROCESSES,))
    model.lm_head.weight = torch.nn.Parameter(distribute_tensor(model.lm_head.weight, mesh, [Shard(0)]))
    assert "loss from logits: lm_head.weight is a DTensor" in str(tegula.report(model))


def experts_in_parts_by_another():
    """Nothing gathers their weights either: transformers' experts run, and the report says so."""
    model = tiny.make("qwen3_moe")
    tegula.apply_to_model(model)
    experts = model.model.layers[1].mlp.experts
    mesh = init_device_mesh("cpu", (PROCESSES,))
    experts.gate_up_proj = torch.nn.Parameter(distribute_tensor(experts.gate_up_proj, mesh, [Shard(2)]))
    row = next(row for row in tegula.report(model) if row.modules.endswith("experts"))
    assert (row.runs, row.note) == ("transformers", "gate_up_proj is a DTensor; this model")
    assert stacked_experts.computed(experts, None, None, None) == (None, "gate_up_proj is a DTensor")


def experts_as_a_unit():
    """FSDP gathers their weights around their forward."""
    inputs, model = tiny.batch((4, 17), padding=PADDING), tiny.make("qwen3_moe")
    tegula.apply_to_model(model)
    experts = model.model.layers[1].mlp.experts
    model = sharded(lambda model: experts, "layers")(model)
    tiny.assert_close(loss_and_gradients(model, inputs)[:2], stock("qwen3_moe"), F32)
    assert stacked_experts.served_by(experts) == "tegula"


for arguments in (("ddp", "model before"), ("layers", "classes before"), ("layers", "model after")):
    case(checkpointing, *arguments)
for wrapper in ("ddp", "layers", "norm and head", "hybrid"):
    case(adamw_and_clipping, wrapper)
for wrapper in ("root", "norm and head"):
    case(logits_and_scores, wrapper)
case(mixed_precision)
case(a_head_in_parts_by_another)
if STACKED:
    case(experts_in_parts_by_another)
    case(experts_as_a_unit)


def one_worker(store, rank, size, timeout):
    """gloo with one thread for collectives, not two: those of PyTorch 2.13 note the name of the last one without a lock
    (ProcessGroupGloo::runLoop), which now and then frees it twice and ends the process."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_default_device()]
    options._threads, options._timeout = 1, timeout
    return dist.ProcessGroupGloo(store, rank, size, options)


def run_cases(rank, folder):
    """Writes what became of each case. After a failure the processes are out of step: the rest is not run."""
    torch.set_num_threads(1)
    dist.Backend.register_backend("one_worker", one_worker, devices="cpu")
    dist.init_process_group("one_worker", init_method=f"file://{folder}/store", rank=rank, world_size=PROCESSES)
    for index, run in enumerate(CASES.values()):
        try:
            run()
            result = ""
        except Exception:
            result = traceback.format_exc()
        with open(f"{folder}/{rank}_{index}", "w") as file:
            file.write(result)
        if result:
            os._exit(1)  # the other process, waiting, sees the connection close
        tegula.reset()
    dist.destroy_process_group()


# ---- tests ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the processes wrote their results, and in `end` how they ended."""
    folder = tmp_path_factory.mktemp("processes")
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    end = "all processes ran to their end"
    try:
        torch.multiprocessing.spawn(run_cases, (str(folder),), PROCESSES)
    except torch.multiprocessing.ProcessExitedException as exception:
        end = str(exception)  # the tests say which case it was
    finally:
        os.environ.pop("OMP_NUM_THREADS") if before is None else os.environ.update(OMP_NUM_THREADS=before)
    (folder / "end").write_text(end)
    return folder


@pytest.mark.usefixtures("device")
@pytest.mark.cpu("its processes share the CPU")
@pytest.mark.parametrize("name", CASES)
def test_two_processes(folder, name):
    results = [folder / f"{rank}_{list(CASES).index(name)}" for rank in range(PROCESSES)]
    reports = {result.name: result.read_text() for result in results if result.exists()}
    for result, report in reports.items():
        assert not report, f"process and case {result}: {report}"
    if len(reports) < PROCESSES:  # in a line: many cases may follow
        end = (folder / "end").read_text()
        pytest.fail(f"expected {PROCESSES} processes to finish it, got {len(reports)}: {end}", pytrace=False)


# ---- one process, several devices ----

LAST = ("model.norm", "lm_head")


def spread(model, folder, offloaded):
    """As device_map does: hooks around all modules; weights of those offloaded come from the disk when they run."""
    names = ["model.embed_tokens", "model.rotary_emb", *(f"model.layers.{index}" for index in range(3)), *LAST]
    main = 0 if placed.device == "cuda" else "cpu"
    devices = {name: "disk" if name in offloaded else main for name in names}
    return accelerate.dispatch_model(model, devices, main_device=main, offload_dir=folder, force_hooks=True)


@pytest.mark.usefixtures("device", "fast_everywhere")
@pytest.mark.parametrize("variant", ["qwen3", "llama biases", "qwen3_moe"])
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("offloaded", [(), ("model.layers.1", *LAST), ("model.layers.0",)])
def test_device_map(tmp_path, variant, order, offloaded):
    model, inputs = tiny.make(variant), tiny.batch(padding=[0, 4])
    stock, want = tiny.loss_and_gradients(model, inputs), tiny.logits(model, inputs)
    names = tegula.apply_to_model(model) if order == "before" else None
    model = spread(model, tmp_path, offloaded)
    names = tegula.apply_to_model(model) if order == "after" else names
    assert {f"{op}_{model.config.model_type}" for op in OPS} <= set(names)
    assert {p.device.type for p in model.parameters()} == ({placed.device, "meta"} if offloaded else {placed.device})
    real = inputs["attention_mask"].bool()
    assert tiny.distance(tiny.logits(model, inputs)[real], want[real]) <= F32
    with torch.no_grad():
        assert tiny.distance(model(**inputs).loss, stock[0]) <= F32
        out = model(**inputs, skip_logits=True)
    assert out.logits is None and tiny.distance(out.loss, stock[0]) <= F32
    top, trunk, *others = tegula.report(model)
    assert top.runs == "tegula: linear_cross_entropy in training" and "add_rms_norm between layers" in trunk.runs
    for index, layer in enumerate(row for row in others if row.modules == "model.layers.*"):
        # Offloaded, the norm is called: its weight comes from the disk then.
        assert ("runs by itself" in layer.note) == (f"model.layers.{index}" in offloaded), layer
    if not offloaded:
        tiny.assert_close(tiny.loss_and_gradients(model, inputs), stock, F32)
