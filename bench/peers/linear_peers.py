"""Peers of the linear layer: PyTorch, oneDNN through it, OpenBLAS."""

import ctypes
import dataclasses
import math
import os
import shutil
import tempfile

import torch
import torch.nn.functional as F

from peers.peer_problem import Peer, Problem, torch_peer

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


def on_cpu():
    return torch.empty(0).device.type == "cpu"


def onednn_takes(dtype):
    """On the CPU f32 everywhere, bf16 where the processor helps; f16 needs AVX512-FP16."""
    return on_cpu() and (dtype == torch.float32 or (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()))


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
    if x.dtype == torch.float32 and on_cpu():
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
    tf32 = words.flag("tf32")  # on a GPU, of the peers, too
    torch.backends.cuda.matmul.allow_tf32 = tf32
    tolerance = 4e-3 if tf32 else 0.0
    words.done()
    blas = blas if dtype == torch.float32 and on_cpu() else ()
    x = torch.randn(rows, cols, dtype=dtype)
    weight = torch.randn(out, cols, dtype=dtype) / math.sqrt(cols)
    if not backward:
        fields = dict(x=x, weight=weight, y=torch.empty(rows, out, dtype=dtype), allow_tf32=tf32)
        return Problem(fields, linear_forward(x, weight, blas), tolerance)
    dy = torch.randn(rows, out, dtype=dtype)
    fields = dict(dy=dy, x=x, weight=weight, allow_tf32=tf32)
    if not no_dx:
        fields["dx"] = torch.empty_like(x)
    if not no_dweight:
        fields["dweight"] = torch.zeros_like(weight)
    if no_dx:
        return Problem(fields, linear_weight_gradient(dy, x, blas), tolerance)
    if no_dweight:
        return Problem(fields, linear_input_gradient(dy, weight, blas), tolerance)
    both = Peer("torch", lambda: {"dx": torch.mm(dy, weight), "dweight": torch.mm(dy.t(), x)})
    return Problem(fields, [both], tolerance)


BUILDERS = dict(linear=linear)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "linear": ["128x3072x768"],
}
