"""tegula.arrays: every entry of the op table on NumPy's arrays, beside the functions of PyTorch's tensors or plain NumPy."""

import os
import pathlib
import subprocess
import sys

import pytest

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
np = pytest.importorskip("numpy")
arrays = tegula.arrays
RNG = np.random.default_rng(1)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def ids(high, *shape):
    return RNG.integers(0, high, shape)


def close(got, want, bound=1e-5):
    assert got.shape == want.shape, (got.shape, want.shape)
    assert np.abs(got - want).max() <= bound * max(1e-30, np.abs(want).max())


def test_every_entry_has_a_function_and_rules():
    names = {entry["name"] for entry in tegula._core.ops()}
    assert {function.entry for function in map(arrays.__dict__.get, arrays.__all__)} == names
    from tegula.arrays.result_rules import RULES

    for entry in tegula._core.ops():
        outputs = {s["name"] for s in entry["slots"] if s["kind"] in ("tensor", "list") and s["role"] in ("out", "acc")}
        assert set(RULES[entry["name"]]) == outputs, entry["name"]
    assert "rms_norm" in arrays.__all__ and "rms_norm_bwd" in arrays.__all__ and "adamw_step" in arrays.__all__


def test_scalars_have_the_defaults_of_ops():
    if os.environ.get("TEGULA_TORCH") == "none":
        pytest.skip("TEGULA_TORCH=none: no tegula.ops")
    pytest.importorskip("torch")
    import inspect

    compared = 0
    for name in set(arrays.__all__) & set(tegula.ops.__all__):
        function, theirs = getattr(arrays, name), inspect.signature(getattr(tegula.ops, name)).parameters
        for scalar in function.scalars:
            other = theirs.get("approximate" if scalar == "approximation" else scalar)
            if other is not None and other.default not in (None, other.empty):
                assert inspect.signature(function).parameters[scalar].default == other.default, (name, scalar)
                compared += 1
    assert compared > 50


# ---- against formulas ----


def test_rms_norm_of_any_rank():
    x, w, dy = normal(2, 3, 8), normal(8), normal(2, 3, 8)
    y, rstd = arrays.rms_norm(x, w, eps=1e-5, results=("y", "rstd"))
    want = 1 / np.sqrt((x.astype(float) ** 2).mean(-1) + 1e-5)
    assert type(y) is np.ndarray
    close(rstd, want)
    close(y, x * want[..., None] * w)
    dx, dweight = arrays.rms_norm_bwd(dy, x, w, rstd)
    inner = dy * w
    close(dx, want[..., None] * (inner - x * (want**2 * (inner * x).mean(-1))[..., None]), 1e-4)
    close(dweight, (dy * x * want[..., None]).sum((0, 1)))
    close(arrays.rms_norm(x[0, 0], w), arrays.rms_norm(x, w)[0, 0])
    assert arrays.rms_norm(x.astype(float), w.astype(float)).dtype == np.float64
    assert arrays.rms_norm(x.astype(np.float16), w).dtype == np.float16


def test_the_example_of_the_page(capsys):
    section = (pathlib.Path(__file__).resolve().parents[3] / "docs/models.md").read_text(encoding="utf-8").split("\n## Kernels on arrays\n")[1]
    exec(section.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out == section.split("```text\n")[1].split("```")[0]


def test_given_outputs_and_sums():
    x, w, dy = normal(4, 8), normal(8), normal(4, 8)
    out = np.empty_like(x)
    y, rstd = arrays.rms_norm(x, w, y=out, results=("y", "rstd"))
    assert y is out
    close(out, arrays.rms_norm(x, w))
    total = np.ones(8, np.float32)
    arrays.rms_norm_bwd(dy, x, w, rstd, dweight=total, results="dweight")
    close(total, 1 + arrays.rms_norm_bwd(dy, x, w, rstd).dweight)
    a = arrays.rms_norm_bwd(dy, x, w, rstd, results="dx")
    close(a, arrays.rms_norm_bwd(dy, x, w, rstd).dx)
    table = np.zeros((9, 8), np.float32)
    arrays.embedding_bwd(dy, np.array([1, 2, 1, 8]), dtable=table)
    close(table[1], dy[0] + dy[2])


def test_elementwise_and_gated():
    x, dy = normal(3, 5, 6), normal(3, 5, 6)
    s = 1 / (1 + np.exp(-x.astype(float)))
    close(arrays.silu(x), x * s)
    close(arrays.silu_bwd(dy, x), dy * (s * (1 + x * (1 - s))))
    e = np.exp(2 * x.astype(float) - (2 * x).max(-1, keepdims=True))
    close(arrays.softmax(x, scale=2.0), e / e.sum(-1, keepdims=True))
    gate, up = normal(4, 6), normal(4, 6)
    want = gate / (1 + np.exp(-gate.astype(float))) * up
    close(arrays.swiglu(gate=gate, up=up, rounding="once"), want)
    close(arrays.swiglu(gate_up=np.concatenate([gate, up], 1)), want)
    grads = arrays.swiglu_bwd(normal(4, 6), gate=gate, up=up)
    assert grads._fields == ("dgate", "dup") and grads.dup.shape == (4, 6)
    assert arrays.geglu(gate_up=normal(2, 4, 6), approximation="tanh").shape == (2, 4, 3) and arrays.swiglu_clamped(gate_up=normal(4, 6)).shape == (4, 3)


def test_losses():
    logits, targets = normal(2, 3, 7), ids(7, 2, 3)
    z = logits.astype(float)
    logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
    each = -np.take_along_axis(logp, targets[..., None], -1)[..., 0]
    loss, lse, argmax = arrays.cross_entropy(logits, targets, results=("loss", "lse", "argmax"))
    close(loss, each.mean().reshape(1))
    close(lse, np.log(np.exp(z).sum(-1)))
    assert (argmax == z.argmax(-1)).all()
    close(arrays.cross_entropy(logits, targets, num_items_in_batch=12), each.sum().reshape(1) / 12)
    close(arrays.cross_entropy(logits, targets, reduction="none").reshape(2, 3), each)
    want = (np.exp(logp) - np.eye(7)[targets]) / 6
    close(arrays.cross_entropy_bwd(logits, targets, lse), want)
    both = arrays.cross_entropy_fwdbwd(logits, targets)
    close(both.dlogits, want)
    hidden, weight = normal(2, 3, 5), normal(7, 5)
    fused = arrays.linear_cross_entropy_fwdbwd(hidden, weight, targets, results=("loss", "lse", "dhidden", "dweight"))
    parts = arrays.cross_entropy_fwdbwd(hidden @ weight.T, targets)
    close(fused.loss, parts.loss)
    close(fused.dhidden, parts.dlogits @ weight, 1e-4)
    close(fused.dweight, np.einsum("btv,bth->vh", parts.dlogits, hidden), 1e-4)


def test_heads_and_positions():
    q, k, v = normal(2, 6, 4, 8), normal(2, 6, 2, 8), normal(2, 6, 2, 8)
    out, lse = arrays.attention(q, k, v, causal=True, results=("out", "lse"))
    scores = np.einsum("bihd,bjhd->bhij", q, k.repeat(2, 2)).astype(float) / np.sqrt(8)
    scores = np.where(np.tril(np.ones((6, 6))) > 0, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    close(out, np.einsum("bhij,bjhd->bihd", p, v.repeat(2, 2)))
    naive, probabilities = arrays.attention_naive(q, k, v, causal=True, results=("out", "probabilities"))
    close(naive, out)
    close(probabilities, p)
    dout = normal(*out.shape)
    one = arrays.attention_bwd(dout, q, k, v, out, lse, causal=True)
    other = arrays.attention_naive_bwd(dout, q, k, v, probabilities)
    assert one._fields == ("dq", "dk", "dv")
    for a, b in zip(one, other):
        close(a, b, 1e-4)
    angle = np.arange(6)[:, None] / 10.0 ** np.arange(4)
    cos, sin = (f(angle)[None].astype(np.float32) for f in (np.cos, np.sin))
    turned, turned_k = arrays.rope(q, cos, sin, k)
    close(turned[..., :4], q[..., :4] * cos[..., None, :] - q[..., 4:] * sin[..., None, :])
    assert turned_k.shape == k.shape
    back = arrays.rope_bwd(turned, cos=cos, sin=sin)
    close(back, q, 1e-4)
    named = arrays.qk_norm_rope(q, k, np.ones(8, np.float32), np.ones(8, np.float32), cos, sin, results=("q_out", "k_out", "q_rstd", "k_rstd"))
    assert named.q_rstd.shape == (2, 6, 4)
    grads = arrays.qk_norm_rope_bwd(named.q_out, named.k_out, q, k, np.ones(8, np.float32), np.ones(8, np.float32), cos, sin, named.q_rstd, named.k_rstd)
    assert grads.dk.shape == k.shape and grads.dq_weight.shape == (8,)
    table, positions = normal(9, 8), normal(6, 8)
    tokens = ids(9, 2, 6)
    close(arrays.embedding(tokens, table, positions), table[tokens] + positions)


def test_products_and_quantised():
    x, w, b = normal(2, 3, 8), normal(5, 8), normal(5)
    close(arrays.linear(x, w, b), x @ w.T + b)
    dx, dweight = arrays.linear_bwd(normal(2, 3, 5), x, w)
    assert dx.shape == x.shape and dweight.shape == w.shape
    assert arrays.linear_bwd(normal(2, 3, 5), x, w, results=("dbias",)).shape == (5,)
    wide = normal(4, 64)
    q, scale = arrays.quantize_int8(wide)
    assert q.dtype == np.int8 and np.abs(arrays.dequantize_int8(q, scale) - wide).max() < 0.05
    q, scale = arrays.quantize_int4(wide)
    assert q.shape == (4, 32) and np.abs(arrays.dequantize_int4(q, scale) - wide).max() < 0.5
    assert arrays.dequantize_mxfp4(np.zeros((2, 3, 16), np.uint8), np.full((2, 3), 127, np.uint8)).shape == (2, 96)
    with pytest.raises(ValueError, match="y: expected an array to write to"):
        arrays.linear_int8(x, np.zeros(64, np.uint8))


def test_experts():
    x, logits = normal(6, 8), normal(6, 4)
    indices, weights = arrays.topk_router(logits, k=2)
    assert (np.sort(indices, 1) == np.sort(np.argsort(-logits, 1)[:, :2], 1)).all()
    offsets, slot, row = arrays.moe_plan(indices, experts=4)
    up, down = normal(4, 6, 8), normal(4, 8, 3)
    gathered = arrays.grouped_linear(x, up, offsets, slot=slot, activation="swiglu")
    y = arrays.grouped_linear(gathered, down, offsets)
    combined = arrays.moe_combine(row, y, weights)
    whole, kept = arrays.moe_mlp(x, weights, offsets, slot, row, up, down, results=("y", "preactivation"))
    close(combined, whole, 1e-4)
    grads = arrays.moe_mlp_bwd(normal(6, 8), x, weights, offsets, slot, row, up, down, kept)
    assert grads.dx.shape == x.shape and grads.dgate_up.shape == up.shape and grads.ddown.shape == down.shape
    dy, dweights = arrays.moe_combine_bwd(normal(6, 8), row, slot=slot, weights=weights, y=y)
    assert dy.shape == y.shape and dweights.shape == weights.shape
    assert arrays.topk_router_bwd(weights, logits, indices).shape == logits.shape
    assert arrays.grouped_linear_bwd(y, gathered, down, offsets).dweight.shape == down.shape


def test_experts_in_mxfp4():
    x, offsets = normal(3, 32), np.array([0, 1, 3], np.int32)
    blocks, scales = RNG.integers(0, 256, (2, 6, 1, 16)).astype(np.uint8), np.full((2, 6, 1), 127, np.uint8)
    weight = arrays.dequantize_mxfp4(blocks.reshape(12, 1, 16), scales.reshape(12, 1)).reshape(2, 6, 32)
    if os.environ.get("TEGULA_TORCH") == "none":
        pytest.skip("TEGULA_TORCH=none: no pack_mxfp4")
    torch = pytest.importorskip("torch")
    packed = tegula.ops.pack_mxfp4(torch.from_numpy(blocks), torch.from_numpy(scales)).data.numpy()
    bias = normal(2, 6)
    close(arrays.grouped_linear_mxfp4(x, packed, offsets, bias), arrays.grouped_linear(x, weight, offsets, bias), 1e-4)
    with pytest.raises(ValueError, match="y: expected an array to write to"):
        arrays.grouped_linear_mxfp4(x, packed, offsets)
    y = np.empty((3, 6), np.float32)
    assert arrays.grouped_linear_mxfp4(x, packed, offsets, y=y) is y


def test_optimiser_and_sampling():
    params, grads = [normal(3, 4), normal(5)], [normal(3, 4), normal(5)]
    before = [p.copy() for p in params]
    m, v = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    assert arrays.adamw_step(params, grads, m, v, step=1, lr=0.1, weight_decay=0.0) is None
    for p, old, g in zip(params, before, grads):
        close(p, old - 0.1 * g / (np.abs(g) + 1e-8), 1e-4)
    norm = np.sqrt(sum((g.astype(float) ** 2).sum() for g in grads))
    close(arrays.global_norm(grads), norm.reshape(1))
    got, clip = arrays.global_norm(grads, max_norm=0.5, results=("norm", "clip"))
    close(clip, (0.5 / (norm + 1e-6)).reshape(1))
    logits = normal(2, 3, 9)
    assert (arrays.sample(logits, temperature=0.0) == logits.argmax(-1)).all()
    seeds = np.array([[5, 6, 7], [8, 5, 9]])
    picked = arrays.sample(np.broadcast_to(logits[0, 0], (2, 3, 9)).copy(), seeds=seeds)
    assert picked[0, 0] == picked[1, 1] == arrays.sample(logits[0, :1], seed=5)[0]


# ---- other libraries ----


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_functions_of_pytorch(dtype):
    if os.environ.get("TEGULA_TORCH") == "none":
        pytest.skip("TEGULA_TORCH=none")
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    x, w, b = torch.randn(2, 3, 8).to(kind), torch.randn(8).to(kind), torch.randn(8).to(kind)
    y = arrays.rms_norm(x, w, eps=1e-6)
    assert type(y) is torch.Tensor and y.dtype == kind and y.shape == x.shape and (y == tegula.ops.rms_norm(x, w)).all()
    assert (arrays.layer_norm(x, w, b, eps=1e-5) == tegula.ops.layer_norm(x, w, b)).all()
    assert (arrays.linear(x, w[None].repeat(5, 1)) == tegula.ops.linear(x, w[None].repeat(5, 1))).all()
    assert (arrays.swiglu(gate=x, up=x) == tegula.ops.swiglu(x, x)).all()
    assert (arrays.gelu(x) == tegula.ops.gelu(x)).all()
    q = torch.randn(2, 4, 6, 16).to(kind)
    got = arrays.attention(q.transpose(1, 2).contiguous(), q.transpose(1, 2).contiguous(), q.transpose(1, 2).contiguous(), causal=True)
    assert (got.transpose(1, 2) == tegula.ops.attention(q, q, q, causal=True)).all()
    leaf = x.clone().requires_grad_()
    tegula.ops.rms_norm(leaf, w).backward(torch.ones_like(x))
    y, rstd = arrays.rms_norm(x, w, results=("y", "rstd"))
    assert (arrays.rms_norm_bwd(torch.ones_like(x), x, w, rstd).dx == leaf.grad).all()


def test_arrays_of_our_own():
    x = tegula._core.array([1.0, 2.0, 3.0, 4.0], (2, 2), "float32")
    w = tegula._core.array([1.0, 1.0], (2,), "float32")
    y = arrays.rms_norm(x, w)
    assert type(y) is tegula.Array and y.shape == (2, 2)
    grads = arrays.rms_norm_bwd(x, x, w, arrays.rms_norm(x, w, results="rstd"))
    assert np.isfinite(np.from_dlpack(grads.dweight)).all()


def test_codes_of_8_bits_give_f32():
    if os.environ.get("TEGULA_TORCH") == "none":
        pytest.skip("TEGULA_TORCH=none: NumPy has no e4m3")
    torch = pytest.importorskip("torch")
    x, w = (torch.from_numpy(normal(n, 32)).to(torch.float8_e4m3fn) for n in (3, 5))
    scales = torch.rand(3) + 0.5, torch.rand(5) + 0.5
    y = arrays.linear_fp8_fp8(x, w, scales[1], scales[0])
    assert y.dtype == torch.float32 and y.shape == (3, 5)
    close(y.numpy(), ((x.float() * scales[0][:, None]) @ (w.float() * scales[1][:, None]).T).numpy(), 1e-4)


def test_jax():
    jax = pytest.importorskip("jax")
    x, w = normal(2, 3, 8), normal(8)
    y = arrays.rms_norm(jax.numpy.asarray(x), jax.numpy.asarray(w))
    assert isinstance(y, jax.Array)
    close(np.asarray(y), arrays.rms_norm(x, w))
    on_gpu = jax.default_backend() == "gpu"
    for device in ("cpu", "cuda") if on_gpu else ("cpu",):
        model = tegula.Model.from_preset("gpt_nano", vocab_size=257, device=device)
        ids = jax.device_put(np.array([[1, 2, 3]], "int32"), jax.devices("gpu" if device == "cuda" else "cpu")[0])
        logits, tokens = model(ids), model.generate(ids, 4)
        assert isinstance(logits, jax.Array) and logits.device == tokens.device == ids.device
        assert (np.asarray(logits) == model(np.array([[1, 2, 3]]))).all()
        assert (np.asarray(tokens) == model.generate(np.array([[1, 2, 3]]), 4)).all()
    dy, rstd = normal(2, 3, 8), arrays.rms_norm(x, w, results=("rstd",))
    want = arrays.rms_norm_bwd(dy, x, w, rstd, results=("dx", "dweight"))
    got = arrays.rms_norm_bwd(*map(jax.numpy.asarray, (dy, x, w, rstd)), results=("dx", "dweight"))  # dweight is added to
    for one, other in zip(got, want):
        assert isinstance(one, jax.Array)
        close(np.asarray(one), other)


def test_memory_on_a_gpu():
    try:
        made = tegula._core.empty((2, 3), "float32", 0, True)
    except (RuntimeError, NotImplementedError) as error:
        assert str(error).startswith("context_create: ")
        pytest.skip("no GPU")
    assert made.__dlpack_device__() == (2, 0) and made.shape == (2, 3)
    for read in (made.tolist, lambda: memoryview(made), lambda: made[0][0], lambda: made.__dlpack__(dl_device=(1, 0))):
        with pytest.raises(BufferError):
            read()
    torch = pytest.importorskip("torch")
    view = torch.from_dlpack(made)
    del made  # the view keeps the memory
    view[1] += 2
    assert view.tolist() == [[0, 0, 0], [2, 2, 2]]


def test_wrong_calls():
    x, w = normal(4, 8), normal(8)
    with pytest.raises(ValueError, match=r"rms_norm_fwd: weight: expected f32 \[8\], got f32 \[7\]"):
        arrays.rms_norm(x, w[:7].copy())
    with pytest.raises(ValueError, match="results: expected some of y, rstd, got 'mean'"):
        arrays.rms_norm(x, w, results=("mean",))
    with pytest.raises(ValueError, match="policy: expected llama or gpt_oss, got 'gemma'"):
        arrays.rms_norm(x, w, policy="gemma")
    with pytest.raises(ValueError, match="dtable: expected an array to write to"):
        arrays.embedding_bwd(x, ids(9, 4), results=("dtable",))
    for call in (lambda: arrays.rms_norm(x), lambda: arrays.rms_norm(x, w, epsilon=1), lambda: arrays.rms_norm("x", w), lambda: arrays.adamw_step([x], [x], [x], [x])):
        with pytest.raises(TypeError):
            call()


def test_nothing_else_is_imported():
    program = (
        "import sys, tegula; x = tegula._core.array([1.0, 2.0], (1, 2), 'float32'); print(tegula.arrays.silu(x).shape);"
        "assert not {'numpy', 'torch', 'tegula._runtime'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "(1, 2)\n", done.stderr
