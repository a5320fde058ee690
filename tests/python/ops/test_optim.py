"""tegula.optim.AdamW beside torch.optim.AdamW, and clipping by the global norm."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="without PyTorch: no tegula.optim")
tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")

import placed  # noqa: E402

from tegula import ops  # noqa: E402
from tegula.optim import AdamW  # noqa: E402

pytestmark = pytest.mark.usefixtures("device")

SHAPES = [(5, 4), (7,), (), (3, 2, 2)]


def parameters(dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.nn.Parameter(placed.randn(shape).to(dtype)) for shape in SHAPES]


def groups(params):
    return [{"params": params[:2], "lr": 0.02, "betas": (0.8, 0.95)}, {"params": params[2:], "weight_decay": 0.0}]


def run(optimizer, params, seed, steps=3):
    torch.manual_seed(seed)
    for step in range(steps):
        for index, param in enumerate(params):
            param.grad = None if index == 1 and step == 1 else placed.randn(param.shape).to(param.dtype)
        optimizer.step()


def same(ours, theirs, bound=1e-6):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=bound, atol=bound)


def options(**more):
    return {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-7, **more}


def test_steps_like_torch():
    """Groups, a gradient that is missing in one step, a schedule."""
    ours, theirs = parameters(), parameters()
    pairs = [(ours, AdamW(groups(ours), **options())), (theirs, torch.optim.AdamW(groups(theirs), **options()))]
    for params, optimizer in pairs:
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
        for round_ in range(3):
            run(optimizer, params, seed=round_)
            schedule.step()
    same(ours, theirs)
    assert pairs[0][1].param_groups[0]["lr"] == 0.02 / 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_within_twice_pytorchs_error(dtype):
    exact = [torch.nn.Parameter(p.detach().double()) for p in parameters(dtype)]
    naive, ours = parameters(dtype), parameters(dtype)
    torch.manual_seed(1)
    grads = [placed.randn(shape).to(dtype) for shape in SHAPES]
    for params, kind in ((exact, torch.optim.AdamW), (naive, torch.optim.AdamW), (ours, AdamW)):
        for param, grad in zip(params, grads):
            param.grad = grad.to(param.dtype)
        kind(params, **options(lr=0.1)).step()
    for a, b, c in zip(ours, exact, naive):
        floor = torch.finfo(dtype).eps / 2 * b.abs().max()
        assert (a.double() - b).abs().max() <= torch.maximum(2 * (c.double() - b).abs().max(), floor)


@pytest.mark.parametrize("first, second", [(AdamW, torch.optim.AdamW), (torch.optim.AdamW, AdamW), (AdamW, AdamW)])
def test_state_dicts_are_interchangeable(first, second):
    params, whole = parameters(), parameters()
    run_whole = torch.optim.AdamW(groups(whole), **options())
    for seed in (1, 2):
        run(run_whole, whole, seed)
    before = first(groups(params), **options())
    run(before, params, 1)
    after = second(groups(params), **options(lr=1.0))
    after.load_state_dict(pickle.loads(pickle.dumps(before.state_dict())))
    run(after, params, 2)
    same(params, whole)
    ours, theirs = after.state_dict(), run_whole.state_dict()
    assert ours["state"].keys() == theirs["state"].keys()
    assert [group.keys() for group in ours["param_groups"]] == [group.keys() for group in theirs["param_groups"]]
    for index, state in theirs["state"].items():
        assert state.keys() == ours["state"][index].keys()
        same(ours["state"][index].values(), state.values())


def test_a_fused_state_of_torch():
    params, whole = parameters(), parameters()
    optimizers = [torch.optim.AdamW(p, **options(fused=True)) for p in (params, whole)]
    for optimizer, p in zip(optimizers, (params, whole)):
        run(optimizer, p, 1)
    ours = AdamW(params, **options())
    ours.load_state_dict(optimizers[0].state_dict())
    run(ours, params, 2)
    run(optimizers[1], whole, 2)
    same(params, whole)


def test_state_dtypes_and_masters_survive_saving():
    params = parameters(torch.bfloat16)
    optimizer = AdamW(params, **options(lr=1e-4, state_dtype=torch.float32, master_weights=True))
    run(optimizer, params, 1)
    whole = copy.deepcopy(params)
    state = optimizer.state[params[0]]
    assert {name: value.dtype for name, value in state.items() if name != "step"} == dict.fromkeys(("exp_avg", "exp_avg_sq", "master"), torch.float32)
    assert torch.equal(state["master"].bfloat16(), params[0].detach()) and not torch.equal(state["master"], params[0].detach().float())
    saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
    run(optimizer, params, 2)
    again = AdamW(whole, **options(state_dtype=torch.float32, master_weights=True))
    again.load_state_dict(saved)
    run(again, whole, 2)
    for a, b in zip(params, whole):
        assert torch.equal(a, b) and torch.equal(optimizer.state[a]["master"], again.state[b]["master"])
    small = AdamW(whole, **options(state_dtype=torch.bfloat16))
    small.load_state_dict(saved)
    assert {v.dtype for n, v in small.state[whole[0]].items() if n != "step"} == {torch.bfloat16}
    other = copy.deepcopy(again)
    assert other.state_dtype == torch.float32 and other.master_weights


def test_small_updates_reach_masters():
    params = [torch.nn.Parameter(placed.ones(4, dtype=torch.bfloat16))]
    optimizer = AdamW(params, lr=1e-4, weight_decay=0.0, state_dtype=torch.float32, master_weights=True)
    for _ in range(50):
        params[0].grad = torch.ones_like(params[0])
        optimizer.step()
    torch.testing.assert_close(optimizer.state[params[0]]["master"], placed.full((4,), 0.995), rtol=1e-5, atol=0)
    assert (params[0] < 1).all()


def test_closures_strides_and_versions():
    param = torch.nn.Parameter(placed.randn(3, 4))
    optimizer = AdamW([param], lr=0.1)
    version = param._version

    def closure():
        optimizer.zero_grad()
        loss = param.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).requires_grad and param._version > version
    peer = torch.nn.Parameter(param.detach().clone())
    param.grad = placed.randn(4, 3).T  # strided: what a transposed product leaves
    again, other = AdamW([param], lr=0.1), torch.optim.AdamW([peer], lr=0.1)
    peer.grad = param.grad.clone()
    again.step()
    other.step()
    same([param], [peer])
    AdamW([param]).step()


def laid_out(layout):
    """A leaf that is not in C order."""
    torch.manual_seed(3)
    return torch.nn.Parameter({
        "transposed": lambda: placed.randn(5, 4).t(), "permuted": lambda: placed.randn(3, 4, 5).permute(2, 0, 1),
        "channels_last": lambda: placed.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "one wide": lambda: placed.randn(4, 1, 3).permute(1, 2, 0), "gaps": lambda: placed.randn(5, 8)[:, ::2],
        "column": lambda: placed.randn(6, 3)[:, 1], "empty": lambda: placed.randn(3, 0).t(),
    }[layout]())  # fmt: skip


@pytest.mark.parametrize("master", [False, True])
@pytest.mark.parametrize("grad", ["like the param", "in C order"])
@pytest.mark.parametrize("layout", ["transposed", "permuted", "channels_last", "one wide", "gaps", "column", "empty"])
def test_layouts_like_torch(layout, grad, master):
    """What torch.optim.AdamW updates, whatever the strides; also on from its state."""
    dtype = torch.bfloat16 if master else torch.float32
    ours = torch.nn.Parameter(laid_out(layout).detach().to(dtype))
    theirs = torch.nn.Parameter(ours.detach().float().clone())
    strides = ours.stride()
    more = {"state_dtype": torch.float32, "master_weights": True} if master else {}
    optimizers = [AdamW([ours], **options(**more)), torch.optim.AdamW([theirs], **options())]
    torch.manual_seed(4)
    for step in range(4):
        gradient = placed.randn(ours.shape).to(dtype)
        ours.grad = torch.empty_like(ours).copy_(gradient) if grad == "like the param" else gradient
        theirs.grad = gradient.float()
        for optimizer in optimizers:
            optimizer.step()
        if step == 1 and not master:
            optimizers[0] = AdamW([ours], **options())
            optimizers[0].load_state_dict(pickle.loads(pickle.dumps(optimizers[1].state_dict())))
    assert ours.stride() == strides
    kept = optimizers[0].state[ours]["master"] if master else ours
    same([kept], [theirs])
    if master:
        assert torch.equal(kept.to(dtype), ours)


def test_a_transposed_param_is_not_copied():
    from tegula.ops import list_ops

    turned = [placed.randn(5, 4).t() for _ in range(4)]
    names = ("params", "grads", "exp_avg", "exp_avg_sq")
    lists = {name: [tensor] for name, tensor in zip(names, turned)}
    assert list_ops.align(lists) == []
    assert all(lists[name][0].is_contiguous() and lists[name][0].data_ptr() == t.data_ptr() for name, t in zip(names, turned))
    turned[1] = turned[1].contiguous()
    lists = {name: [tensor] for name, tensor in zip(names, turned)}
    assert list_ops.align(lists) == [] and torch.equal(lists["grads"][0], turned[1].t())


@pytest.mark.parametrize("more", [
    {"betas": (0.0, 0.0)}, {"betas": (0.9, 0.0), "eps": 1e-3}, {"betas": (0.0, 0.99)}, {"eps": 0.0}, {"betas": (0, 0.5)},
    {"fused": True}, {"foreach": True}, {"maximize": True}, {"lr": torch.tensor(0.02)}, {"fused": False, "foreach": False},
    {"betas": (torch.tensor(0.8), torch.tensor(0.9))}, {"weight_decay": 0.0},
], ids=str)  # fmt: skip
def test_options_like_torch(more):
    ours, theirs = parameters(), parameters()
    peer = {**more, "betas": tuple(map(float, more.get("betas", (0.9, 0.999))))}  # torch mixes no kinds of numbers
    optimizers = [AdamW(ours, **options(**more)), torch.optim.AdamW(theirs, **options(**peer))]
    for optimizer, params in zip(optimizers, (ours, theirs)):
        run(optimizer, params, 5)
    same(ours, theirs, 2e-6)
    again = torch.optim.AdamW(theirs, **options(**peer))
    again.load_state_dict(optimizers[0].state_dict())
    assert {k: v for k, v in again.param_groups[0].items() if k != "params"}.keys() == optimizers[0].defaults.keys()


@pytest.mark.parametrize("name", ["amsgrad", "capturable", "differentiable"])
def test_what_it_does_not_do_is_refused(name):
    params = parameters()
    with pytest.raises(NotImplementedError, match=f"AdamW: {name}: expected False, got True; see torch.optim.AdamW"):
        AdamW(params, **{name: True})
    with pytest.raises(NotImplementedError, match=f"AdamW: {name}: expected False, got True"):
        AdamW([{"params": params, name: True}])
    theirs = torch.optim.AdamW(params)
    run(theirs, params, 1)
    saved = theirs.state_dict()
    saved["param_groups"][0][name] = True
    ours = AdamW(params)
    if name == "capturable":  # where the step is kept; the numbers are the same
        ours.load_state_dict(saved)
        assert not ours.param_groups[0][name]
    else:
        with pytest.raises(NotImplementedError, match=name):
            ours.load_state_dict(saved)


@pytest.mark.parametrize("param, message", [
    (torch.zeros(3, dtype=torch.complex64), "params: expected dense real tensors, got torch.complex64"),
    (torch.eye(3).to_sparse(), "params: expected dense real tensors, got torch.float32 of layout torch.sparse_coo"),
])  # fmt: skip
def test_params_of_other_kinds(param, message):
    with pytest.raises(TypeError, match=message):
        AdamW([param.requires_grad_()])
    with pytest.raises(TypeError, match=r"adamw_step: params\[0\]: expected a tensor of PyTorch, got <class 'list'>"):
        ops.adamw_step([[1.0]], [], [], [], step=1, lr=0.1)
    with pytest.raises(ValueError, match=r"adamw_step: grads: expected 1 tensors, got 0"):
        ops.adamw_step([torch.ones(2)], [], [], [], step=1, lr=0.1)
    with pytest.raises(ValueError, match=r"adamw_step: grads\[0\]: expected \[2, 3\], got \[6\]"):
        ops.adamw_step([torch.ones(3, 2).t()], [torch.ones(6)], [torch.ones(3, 2).t()], [torch.ones(3, 2).t()], step=1, lr=0.1)


def test_a_gradient_scaler_unscales_before_a_fused_step():
    ours, theirs = parameters(), parameters()
    for params, optimizer in ((ours, AdamW(ours, **options(fused=True))), (theirs, torch.optim.AdamW(theirs, **options()))):
        scaler = torch.amp.GradScaler(placed.device, init_scale=1024.0)
        torch.manual_seed(6)
        for param in params:
            scaler.scale((param * placed.randn(param.shape)).sum()).backward()
        scaler.step(optimizer)
    same(ours, theirs)


@pytest.mark.parametrize("numbers, message", [
    ({"lr": -1}, "lr: expected >= 0, got -1"), ({"eps": -1e-8}, "eps: expected >= 0, got -1e-08"),
    ({"betas": (0.9, 1.0)}, "betas: expected two numbers from 0 on and below 1"),
    ({"betas": (-0.1, 0.9)}, "betas: expected two numbers from 0 on and below 1"),
    ({"weight_decay": -0.1}, "weight_decay: expected >= 0, got -0.1"),
    ({"lr": torch.ones(2)}, r"lr: expected a number or a tensor of one element, got \[2\]"),
])  # fmt: skip
def test_numbers(numbers, message):
    with pytest.raises(ValueError, match=message):
        AdamW(parameters(), **numbers)
    with pytest.raises(TypeError, match="state_dtype: expected None"):
        AdamW(parameters(), state_dtype=torch.int8)


def test_a_step_that_fails_changes_nothing():
    table = torch.nn.Parameter(placed.randn(5, 3))
    torch.nn.functional.embedding(placed.tensor([1]), table, sparse=True).sum().backward()
    optimizer = AdamW([table])
    with pytest.raises(RuntimeError, match="grad: expected a dense gradient, got a sparse one"):
        optimizer.step()
    shared = torch.nn.Parameter(placed.ones(1).expand(3))
    shared.grad = placed.ones(3)
    optimizer = AdamW([shared])
    with pytest.raises(ValueError, match=r"adamw_step: params\[0\]: expected elements that lie apart, got strides \(0,\)"):
        optimizer.step()
    assert (shared == 1).all() and optimizer.state[shared]["step"] == 0 and not optimizer.state[shared]["exp_avg"].any()


@pytest.mark.cpu("its processes are imagined ones on the CPU")
def test_parts_of_distributed_tensors():
    """The step runs on what this process holds. Norms of the whole: test_patched_distributed.py."""
    distributed = pytest.importorskip("torch.distributed")
    tensor = pytest.importorskip("torch.distributed.tensor", reason="without DTensor")
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg", reason="without a fake group")
    distributed.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=2)
    try:
        mesh = tensor.init_device_mesh("cpu", (2,))
        theirs = torch.nn.Parameter(placed.randn(4, 3))
        theirs.grad = placed.randn(4, 3)
        ours = torch.nn.Parameter(tensor.DTensor.from_local(theirs.detach().clone(), mesh, [tensor.Shard(0)]))
        ours.grad = tensor.DTensor.from_local(theirs.grad.clone(), mesh, [tensor.Shard(0)])
        optimizers = AdamW([ours], **options()), torch.optim.AdamW([theirs], **options())
        for optimizer in optimizers:
            optimizer.step()
        same([ours.to_local()], [theirs])
        assert isinstance(optimizers[0].state[ours]["exp_avg"], tensor.DTensor)
        summands = tensor.DTensor.from_local(theirs.grad.clone(), mesh, [tensor.Partial()])
        with pytest.raises(NotImplementedError, match="global_norm: expected tensors in parts or whole, got one with summands"):
            ops.global_norm([summands])
    finally:
        distributed.destroy_process_group()


def test_clip_on_the_way():
    ours, theirs = parameters(), parameters()
    for a, b in zip(ours, theirs):
        a.grad = 10 * placed.randn(a.shape)
        b.grad = a.grad.clone()
    norm, clip = ops.global_norm([p.grad for p in ours], max_norm=1.0)
    AdamW(ours, **options()).step(clip=clip)
    assert torch.allclose(norm[0], torch.nn.utils.clip_grad_norm_(theirs, 1.0))
    torch.optim.AdamW(theirs, **options()).step()
    same(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_global_norm(dtype):
    tensors = [5 * placed.randn(shape).to(dtype) for shape in SHAPES] + [placed.randn(70, 3).to(dtype).T]
    exact = torch.cat([t.double().flatten() for t in tensors]).norm()
    norm, clip = ops.global_norm(tensors, 2.0)
    assert norm.shape == (1,) and abs(norm - exact) <= 1e-6 * exact
    assert abs(clip - 2 / (exact + 1e-6)) <= 1e-6
    assert ops.global_norm([]) == 0


def test_norms_that_are_left_to_pytorch(monkeypatch):
    """As those of f64 on a GPU: here of all tensors."""
    from tegula.ops import list_ops

    tensors = [placed.randn(3, 4), placed.randn(5).double(), placed.randn(2).bfloat16()]
    for order in (tensors, tensors[::-1], tensors[:1]):
        ours = ops.global_norm(order, 1.0)
        monkeypatch.setattr(list_ops, "run_stock", lambda *_: True)
        theirs = ops.global_norm(order, 1.0)
        assert all(a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-6) for a, b in zip(ours, theirs))
        assert torch.equal(ops.global_norm(order), theirs[0])
        bad = ops.global_norm([torch.full_like(order[0], torch.inf)], 1.0)
        assert bad[0].isinf() and bad[1].isnan()
        monkeypatch.undo()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_clip_grad_norm(dtype, max_norm):
    ours, theirs = parameters(dtype), parameters(dtype)
    for a, b in zip(ours, theirs):
        a.grad = placed.randn(a.shape).to(dtype)
        b.grad = a.grad.clone()
    exact = [p.grad.double() for p in ours]
    whole = torch.cat([g.flatten() for g in exact]).norm()
    norm = ops.clip_grad_norm_(iter(ours), max_norm)
    their_norm = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    assert norm.shape == their_norm.shape and abs(norm - whole) <= 1e-6 * whole
    for a, b, c in zip(ours, exact, theirs):
        b = b * min(1.0, max_norm / (whole + 1e-6))
        floor = torch.finfo(dtype).eps / 2 * b.abs().max()
        assert (a.grad.double() - b).abs().max() <= torch.maximum(2 * (c.grad.double() - b).abs().max(), floor)


def test_clip_grad_norm_of_odd_calls():
    param = torch.nn.Parameter(placed.ones(3))
    assert ops.clip_grad_norm_([param], 1.0) == 0 and ops.clip_grad_norm_(param, 1.0) == 0
    for bad in (torch.inf, torch.nan):
        ours, theirs = (torch.nn.Parameter(placed.ones(3)) for _ in range(2))
        ours.grad, theirs.grad = placed.tensor([1.0, bad, 2.0]), placed.tensor([1.0, bad, 2.0])
        with pytest.raises(RuntimeError, match="expected a finite norm, got"):
            ops.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)
        assert torch.equal(ours.grad, theirs.grad) or bad != bad
        a, b = ops.clip_grad_norm_(ours, 1.0), torch.nn.utils.clip_grad_norm_(theirs, 1.0)
        assert torch.allclose(a, b, equal_nan=True) and torch.allclose(ours.grad, theirs.grad, equal_nan=True)
    with pytest.raises(NotImplementedError, match="norm_type: expected 2, got inf"):
        ops.clip_grad_norm_(param, 1.0, norm_type=torch.inf)
    with pytest.raises(ValueError, match="foreach: expected None, got True"):
        ops.clip_grad_norm_(param, 1.0, foreach=True)
