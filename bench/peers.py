"""The same problem for Tegula and for its peers, per op: what to pass, whom to compare with.

A builder returns a Problem: `fields` for tegula_call.Call and the peers, each a function that
returns its results under the names of our slots. Peers are called from their installed packages.
"""

import ctypes
import dataclasses
import math
import os
import shutil
import tempfile

import torch
import torch.nn.functional as F


@dataclasses.dataclass
class Peer:
    impl: str
    run: object  # () -> {slot: tensor or list}
    config: str = ""
    version: str = torch.__version__


@dataclasses.dataclass
class Problem:
    fields: dict
    peers: list
    tolerance: float = 0.0  # of the comparison before timing, where a peer is known to be inexact


def gradients(function, inputs, dy):
    """Backward alone: the graph of `function` on `inputs` (name -> tensor) is built once."""
    leaves = [t.detach().requires_grad_() for t in inputs.values()]
    y = function(*leaves)
    names = ["d" + name for name in inputs]
    return lambda: dict(zip(names, torch.autograd.grad(y, leaves, dy, retain_graph=True)))


def torch_peer(function, name):
    return Peer("torch", lambda: {name: function()})


# ---- normalisations and GELU ----

EPS = 1e-5


def rms_norm(words, backward, dtype):
    rows, cols = words.extents
    policy = "TG_RMS_NORM_GPT_OSS" if words.flag("gptoss") else "TG_RMS_NORM_LLAMA"
    words.done()
    x, weight = torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)
    rstd = (x.float().square().mean(-1) + EPS).rsqrt()

    def forward(x, weight):
        return F.rms_norm(x, (cols,), weight, EPS)

    if not backward:
        fields = dict(x=x, weight=weight, y=torch.empty_like(x), rstd=rstd, eps=EPS, policy=policy)
        return Problem(fields, [torch_peer(lambda: forward(x, weight), "y")])
    dy = torch.randn_like(x)
    fields = dict(dy=dy, x=x, weight=weight, rstd=rstd, dx=torch.empty_like(x),
                  dweight=torch.zeros_like(weight))
    return Problem(fields, [Peer("torch", gradients(forward, dict(x=x, weight=weight), dy))])


def layer_norm(words, backward, dtype):
    rows, cols = words.extents
    words.done()
    x, weight = torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)
    bias = torch.randn(cols, dtype=dtype)
    mean = x.float().mean(-1)
    rstd = ((x.float() - mean[:, None]).square().mean(-1) + EPS).rsqrt()

    def forward(x, weight, bias):
        return F.layer_norm(x, (cols,), weight, bias, EPS)

    if not backward:
        fields = dict(x=x, weight=weight, bias=bias, y=torch.empty_like(x), mean=mean, rstd=rstd,
                      eps=EPS)
        return Problem(fields, [torch_peer(lambda: forward(x, weight, bias), "y")])
    dy = torch.randn_like(x)
    fields = dict(dy=dy, x=x, weight=weight, mean=mean, rstd=rstd, dx=torch.empty_like(x),
                  dweight=torch.zeros_like(weight), dbias=torch.zeros_like(bias))
    inputs = dict(x=x, weight=weight, bias=bias)
    return Problem(fields, [Peer("torch", gradients(forward, inputs, dy))])


def gelu(words, backward, dtype):
    exact = words.flag("erf")
    words.flag("tanh")
    words.done()
    x = torch.randn(words.extents, dtype=dtype)
    approximation = "TG_GELU_ERF" if exact else "TG_GELU_TANH"

    def forward(x):
        return F.gelu(x, approximate="none" if exact else "tanh")

    if not backward:
        fields = dict(x=x, y=torch.empty_like(x), approximation=approximation)
        return Problem(fields, [torch_peer(lambda: forward(x), "y")])
    dy = torch.randn_like(x)
    fields = dict(dy=dy, x=x, dx=torch.empty_like(x), approximation=approximation)
    return Problem(fields, [Peer("torch", gradients(forward, dict(x=x), dy))])


# ---- linear ----

@dataclasses.dataclass
class OpenBlas:
    lib: object
    core: str
    version: str

    def sgemm(self, trans_a, trans_b, a, b, c, beta=0.0):
        """c = a' b' + beta c, row-major; a prime is a transposition if asked for."""
        m, n = c.shape
        k = a.shape[0] if trans_a else a.shape[1]
        row_major, plain, transposed = 101, 111, 112
        p, f, i = ctypes.c_void_p, ctypes.c_float, ctypes.c_int
        self.lib.cblas_sgemm(i(row_major), i(transposed if trans_a else plain),
                             i(transposed if trans_b else plain), i(m), i(n), i(k), f(1.0),
                             p(a.data_ptr()), i(a.shape[1]), p(b.data_ptr()), i(b.shape[1]),
                             f(beta), p(c.data_ptr()), i(n))
        return c


def load_openblas(path, threads):
    lib = ctypes.CDLL(path)
    for name in ("openblas_get_corename", "openblas_get_config"):
        getattr(lib, name).restype = ctypes.c_char_p
    lib.openblas_set_num_threads(threads)
    config = lib.openblas_get_config().decode()
    return OpenBlas(lib, lib.openblas_get_corename().decode(), config.split()[1])


def find_openblas():
    """Path of the installed library; None if there is none."""
    name = "libopenblas.so.0"
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = [line.split()[-1] for line in maps if "openblas" in line]
    return paths[0] if paths else None


def openblas_libraries(threads, cores=("SKYLAKEX",)):
    """As it picks its kernels itself, then made to pick others (from a copy: one file is loaded
    once). Kernels that the processor cannot run are left out."""
    path = find_openblas()
    if not path:
        return []
    found = [load_openblas(path, threads)]
    avx512 = "avx512bw" in open("/proc/cpuinfo", encoding="ascii").read()
    for core in cores if avx512 else ():
        os.environ["OPENBLAS_CORETYPE"] = core
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(path, os.path.join(folder, "libopenblas_" + core + ".so"))
            library = load_openblas(copy, threads)
        del os.environ["OPENBLAS_CORETYPE"]
        if library.core not in [f.core for f in found]:
            found.append(library)
    return found


def onednn_takes(dtype):
    """f32 everywhere, bf16 where the processor helps; f16 needs AVX512-FP16."""
    return dtype == torch.float32 or (dtype == torch.bfloat16 and
                                      torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack_onednn(weight, rows):
    return torch.ops.mkldnn._reorder_linear_weight(weight, rows)


def run_onednn(x, packed):
    return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def onednn_version():
    for line in torch.__config__.show().splitlines():
        if "MKL-DNN" in line or "oneDNN" in line:
            return line.split("v")[-1].split()[0]
    return ""


def linear_forward(x, weight, blas):
    y = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype)
    peers = [torch_peer(lambda: F.linear(x, weight), "y")]
    if onednn_takes(x.dtype):
        packed = pack_onednn(weight, x.shape[0])
        peers.append(Peer("onednn", lambda: {"y": run_onednn(x, packed)},
                          "weight packed beforehand", onednn_version()))
    for lib in blas:
        peers.append(Peer("openblas", lambda lib=lib: {"y": lib.sgemm(False, True, x, weight, y)},
                          f"core {lib.core}", lib.version))
    return peers


def linear_input_gradient(dy, weight, blas):
    dx = torch.empty(dy.shape[0], weight.shape[1], dtype=dy.dtype)
    peers = [torch_peer(lambda: torch.mm(dy, weight), "dx")]
    if onednn_takes(dy.dtype):
        packed = pack_onednn(weight.t().contiguous(), dy.shape[0])
        peers.append(Peer("onednn", lambda: {"dx": run_onednn(dy, packed)},
                          "weight transposed and packed beforehand", onednn_version()))
    for lib in blas:
        peers.append(Peer("openblas", lambda lib=lib: {"dx": lib.sgemm(False, False, dy, weight,
                                                                       dx)},
                          f"core {lib.core}", lib.version))
    return peers


def linear_weight_gradient(dy, x, blas):
    dweight = torch.empty(dy.shape[1], x.shape[1], dtype=x.dtype)
    peers = [torch_peer(lambda: torch.mm(dy.t(), x, out=dweight), "dweight")]
    if x.dtype == torch.float32:
        theirs = [t.to_mkldnn() for t in (dy, x, dweight)]

        def onednn():
            grads = torch.ops.aten.mkldnn_linear_backward_weights(*theirs, False)
            return {"dweight": grads[0].to_dense() if grads[0].is_mkldnn else grads[0]}

        peers.append(Peer("onednn", onednn, "operands converted beforehand", onednn_version()))
    for lib in blas:
        peers.append(Peer("openblas", lambda lib=lib: {"dweight": lib.sgemm(True, False, dy, x,
                                                                            dweight)},
                          f"core {lib.core}", lib.version))
    return peers


def linear(words, backward, dtype, blas=()):
    rows, cols, out = words.extents
    no_dx, no_dweight = words.flag("nodx"), words.flag("nodweight")
    words.flag("nodbias")
    words.done()
    blas = blas if dtype == torch.float32 else ()
    x = torch.randn(rows, cols, dtype=dtype)
    weight = torch.randn(out, cols, dtype=dtype) / math.sqrt(cols)
    if not backward:
        fields = dict(x=x, weight=weight, y=torch.empty(rows, out, dtype=dtype))
        return Problem(fields, linear_forward(x, weight, blas))
    dy = torch.randn(rows, out, dtype=dtype)
    fields = dict(dy=dy, x=x, weight=weight)
    if not no_dx:
        fields["dx"] = torch.empty_like(x)
    if not no_dweight:
        fields["dweight"] = torch.zeros_like(weight)
    if no_dx:
        return Problem(fields, linear_weight_gradient(dy, x, blas))
    if no_dweight:
        return Problem(fields, linear_input_gradient(dy, weight, blas))
    both = Peer("torch", lambda: {"dx": torch.mm(dy, weight), "dweight": torch.mm(dy.t(), x)})
    return Problem(fields, [both])


# ---- attention ----

def attention(words, backward, dtype):
    batch, heads = words.number("b", 1), words.number("h", 1)
    kv_heads = words.number("kv", heads)
    nq = words.number("s", 1)
    keys = words.number("sk", nq)
    dim = words.number("d", 64)
    v_dim = words.number("vd", dim)
    causal = words.flag("causal")
    words.done()

    def heads_inside(n, h, d):
        return torch.randn(batch, n, h, d, dtype=dtype)

    q, k, v = heads_inside(nq, heads, dim), heads_inside(keys, kv_heads, dim), heads_inside(
        keys, kv_heads, v_dim)
    out, lse = heads_inside(nq, heads, v_dim), torch.empty(batch, heads, nq)
    scale = 1 / math.sqrt(dim)
    # PyTorch aligns a causal mask at the top left: the same only if the lengths agree; a single
    # query sees every key.
    masked = causal and nq > 1
    mask = None
    if masked and nq != keys:
        mask = torch.ones(nq, keys, dtype=torch.bool).tril(keys - nq)

    def forward(q, k, v):
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask,
            is_causal=masked and mask is None, scale=scale, enable_gqa=heads != kv_heads)
        return y.transpose(1, 2)

    shared = dict(q=q, k=k, v=v, out=out, lse=lse, scale=scale, causal=causal)
    if not backward:
        return Problem(shared, [torch_peer(lambda: forward(q, k, v), "out")])
    dout = torch.randn_like(out)
    fields = dict(dout=dout, dq=torch.empty_like(q), dk=torch.empty_like(k),
                  dv=torch.empty_like(v), **shared)
    return Problem(fields, [Peer("torch", gradients(forward, dict(q=q, k=k, v=v), dout))])


# ---- the ends of the model, and the optimiser ----

def embedding(words, backward, dtype):
    tokens, vocab, dim = words.extents
    rows = words.number("p", 0)
    seq_len = words.number("s", 0)
    words.done()
    ids = torch.randint(vocab, (tokens,))
    positions = torch.randn(rows, dim, dtype=dtype) if rows else None
    where = torch.arange(tokens) % seq_len if seq_len else torch.arange(tokens)
    if not backward:
        table = torch.randn(vocab, dim, dtype=dtype)
        fields = dict(ids=ids, table=table, y=torch.empty(tokens, dim, dtype=dtype),
                      seq_len=seq_len)
        if rows:
            fields["positions"] = positions

        def forward():
            y = F.embedding(ids, table)
            return y + F.embedding(where, positions) if rows else y

        return Problem(fields, [torch_peer(forward, "y")])
    dy = torch.randn(tokens, dim, dtype=dtype)
    fields = dict(dy=dy, ids=ids, dtable=torch.zeros(vocab, dim, dtype=dtype), seq_len=seq_len)
    if rows:
        fields["dpositions"] = torch.zeros(rows, dim, dtype=dtype)

    def backward_pass():
        grads = {"dtable": torch.ops.aten.embedding_dense_backward(dy, ids, vocab, -1, False)}
        if rows:
            grads["dpositions"] = torch.ops.aten.embedding_dense_backward(dy, where, rows, -1,
                                                                          False)
        return grads

    return Problem(fields, [Peer("torch", backward_pass)])


def cross_entropy(words, backward, dtype):
    rows, vocab = words.extents
    words.done()
    logits, targets = torch.randn(rows, vocab, dtype=dtype), torch.randint(vocab, (rows,))
    shared = dict(logits=logits, targets=targets, reduction="TG_REDUCTION_MEAN")
    if not backward:
        fields = dict(loss=torch.empty(1), **shared)
        return Problem(fields, [torch_peer(lambda: F.cross_entropy(logits, targets)[None], "loss")])
    fields = dict(dloss=torch.ones(1), lse=torch.logsumexp(logits.float(), -1),
                  dlogits=torch.empty_like(logits), **shared)
    run = gradients(lambda logits: F.cross_entropy(logits, targets), dict(logits=logits),
                    torch.ones((), dtype=dtype))
    return Problem(fields, [Peer("torch", run)])


ADAMW = dict(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)


def ragged_list(words, make):
    rows, cols = words.extents
    return [make(rows, cols)] + [make(cols // i) for i in range(1, words.number("t", 1))]


def adamw(words, _backward, dtype):
    params = ragged_list(words, lambda *n: torch.randn(n, dtype=dtype))
    words.done()
    grads = [torch.randn_like(p) for p in params]
    first, second = ([torch.zeros_like(p) for p in params] for _ in range(2))
    fields = dict(params=params, grads=grads, exp_avg=first, exp_avg_sq=second, step=1, **ADAMW)
    peers = []
    for config in ("fused", "foreach"):
        mine = [torch.nn.Parameter(p.detach().clone()) for p in params]
        for p, g in zip(mine, grads):
            p.grad = g
        optimiser = torch.optim.AdamW(mine, lr=ADAMW["lr"], eps=ADAMW["eps"],
                                      betas=(ADAMW["beta1"], ADAMW["beta2"]),
                                      weight_decay=ADAMW["weight_decay"], **{config: True})

        def step(optimiser=optimiser, mine=mine):
            optimiser.step()
            return {"params": [p.detach() for p in mine]}

        peers.append(Peer("torch", step, config))
    return Problem(fields, peers)


def global_norm(words, _backward, dtype):
    tensors = ragged_list(words, lambda *n: torch.randn(n, dtype=dtype))
    words.done()
    fields = dict(tensors=tensors, norm=torch.empty(1))
    run = torch_peer(lambda: torch.nn.utils.get_total_norm(tensors)[None], "norm")
    # PyTorch adds 4e7 squares in f32, one after the other in each lane: 0.3 % off.
    return Problem(fields, [run], tolerance=0.01)


BUILDERS = dict(rms_norm=rms_norm, layer_norm=layer_norm, gelu=gelu, linear=linear,
                attention=attention, embedding=embedding, cross_entropy=cross_entropy, adamw=adamw,
                global_norm=global_norm)
