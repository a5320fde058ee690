"""What gpu_ops.py times: cases of bf16 where nothing else is said, the largest as they occur in
models of 8 G parameters, and small ones, whose time is that of starting a kernel."""

import dataclasses

import product_cases
import quantised_cases

NORM_SHAPES = ["16384x1024", "16384x2048", "16384x4096", "16384x8192", "131072x128"]
SMALL_NORM_SHAPES = ["2048x2048", "32x4096"]
GATED_SHAPE, SMALL_GATED_SHAPE = "8192x14336", "2048x3072"
TINY_SHAPES = {  # what the collections of kernels are timed at that this library replaces
    "rms_norm": [f"128x{cols}" for cols in (1024, 2048, 4096, 8192)],
    "rms_norm_swiglu": [f"128x{cols}" for cols in (128, 512, 1024, 2048, 4096, 8192)],
    "softmax": [f"32x{cols}" for cols in (128, 512, 1024, 2048, 4096, 8192)],
    "swiglu": [f"{rows}x1024" for rows in (1, 64, 1024, 8192)],
}
HEADS_SHAPE = "b1_s4096_h32_kv8_d128"
SOFTMAX_SHAPES = ["4096x4096", "4096x32768", "4096x131072"]
LOSS_SHAPES = ["4096x151936", "4096x201088", "4096x50257"]
HEAD_SHAPES = [f"{rows}x4096x151936_nodbias_overwrite" for rows in (8192, 32768)]
PARAMETERS = "1000000000_t200"  # 100 matrices, 100 vectors
GATED = ["swiglu", "geglu", "swiglu_clamped"]
BOTH = ["fwd", "bwd"]
ATTENTION_SHAPES = {  # by elements of a head
    128: ["b1_h32_kv8_s2048_d128", "b1_h32_kv8_s4096_d128", "b1_h32_kv8_s16384_d128",
          "b8_h32_kv8_s2048_d128"],
    64: ["b4_h8_s4096_d64", "b64_h12_s1024_d64"],
    96: ["b2_h16_s4096_d96"],
    192: ["b2_h16_s4096_d192"],
    256: ["b2_h16_s4096_d256"],
}
MASKS = ("", "_causal")
ANY_ORDER = "_any"  # the backward's sums, as the peers' are
ANY_ORDER_SHAPES = [shape + mask for dim, found in ATTENTION_SHAPES.items() if dim <= 128
                    for shape in found for mask in MASKS]  # the others have one order
DECODE_SHAPES = {  # one query for each sequence: bytes of keys and values
    f"b{batch}_h32_kv8_s1_sk{keys}_d128": batch * keys * 8 * 2 * 128 * 2
    for batch in (1, 16, 64) for keys in (512, 4096, 32768)}
PAGED_SHAPE = "b16_h32_kv8_s1_sk4096_d128_page16"
PACKED_SHAPE = "b32_h32_kv8_s32768_d128_causal_packed"
PACKED_FLOPS = 4 * 32 * 128 * 36_806_813  # pairs of a query and a key that it sees
EVEN_SHAPE = "b32_h32_kv8_s1024_d128_causal"  # as many tokens in sequences of one length
LENGTH_SHAPES = [f"{heads}_s{128 << i}_d64" for heads in ("b1_h1", "b4_h8") for i in range(10)]
OLDER_ENTRY = "sm80"
OLDER_SHAPES = [shape + mask for shape in ("b1_h32_kv8_s4096_d128", "b4_h8_s4096_d64")
                for mask in MASKS]
UNMASKED_SHAPE = "b1_h64_kv8_s8192_d64"  # the next one's heads: what a full block of keys takes
WINDOW_SHAPE, SHORT_WINDOW_SHAPE = (f"b1_h64_kv8_s{tokens}_d64_causal_w128_sink"
                                    for tokens in (8192, 4096))
SINK_SHAPE = "b1_h64_kv8_s4096_d64_causal_sink"  # the other half of GPT-OSS's layers
ROUTED_SHAPES = ["16384x32_k4", "16384x128_k8_renorm"]  # of GPT-OSS 20B, of Qwen3-30B-A3B
PLANNED_SHAPES = {"16384x32_k4_i64": 16384 * 4 * 16, "16384x128_k8_i64": 16384 * 8 * 16}  # bytes
BRIEF_ATTENTION = [f"b1_h32_kv8_s{tokens}_d128_causal" for tokens in (4096, 16384)]
BRIEF = [  # (op, dir, shape): those that most peers have
    *[(op, direction, shape) for op, shape in (
        ("rms_norm", "16384x4096"), ("layer_norm", "16384x4096"), ("add_rms_norm", "8192x4096"),
        ("softmax", "4096x32768")) for direction in BOTH],
    ("cross_entropy", "fwdbwd", LOSS_SHAPES[0]),
    ("linear_cross_entropy", "fwdbwd", HEAD_SHAPES[0]),
    *[("attention", direction, shape + order) for shape in BRIEF_ATTENTION
      for direction, order in (("fwd", ""), ("bwd", ""), ("bwd", ANY_ORDER))],
    *[("attention", direction, shape) for shape in (WINDOW_SHAPE, SHORT_WINDOW_SHAPE)
      for direction in BOTH],
]


@dataclasses.dataclass(frozen=True)
class Case:
    op: str
    dir: str
    shape: str
    bytes: float = 0  # fewest that the op can do with; 0: as bench_ops says
    copied: bool = True  # beside a copy of these bytes; not if the op computes more than it moves
    events: bool = False  # calls are timed one by one: a peer cannot be captured in a graph
    in_place: tuple = ()  # (input, output) that are the same memory
    memory: bool = False  # memory beside inputs and results is measured, too
    compiled: bool = True  # it is one function of PyTorch, which its compiler takes
    libraries: tuple = ()  # behind PyTorch, or as fa4 beside it, timed as peers of their own
    dtype: str = "bf16"
    flops: float = 0  # 0: as bench_ops says, to whom packed sequences are of one length
    entries: tuple = ()  # below the best one, which are judged, too
    group: str = ""  # that --group names; such cases are not timed without it


OVERLAP = "overlap"


def suite_of(entry, overlap=False):
    """Of the record: that of the best entry, or of one that was asked for; launches that may overlap have their own."""
    return " ".join(["gpu"] + [entry] * bool(entry) + [OVERLAP] * overlap)


def both(op, shapes, **more):
    return [Case(op, direction, shape, **more) for shape in shapes for direction in BOTH]


def loss_cases():
    found = []
    for shape in LOSS_SHAPES:
        found += [Case("cross_entropy", "fwd", shape),
                  *[Case("cross_entropy", direction, shape, in_place=("logits", "dlogits"))
                    for direction in ("bwd", "fwdbwd")]]
    return found


def attention_cases():
    shapes = [shape + mask for found in ATTENTION_SHAPES.values() for shape in found
              for mask in MASKS]
    how = dict(copied=False, compiled=False)
    behind = dict(libraries=("cudnn", "fa2", "fa4"), **how)

    def older(shape):
        return dict(entries=(OLDER_ENTRY,)) if shape in OLDER_SHAPES else {}

    return [*[Case("attention", "fwd", shape, **older(shape), **behind) for shape in shapes],
            *[Case("attention", "bwd", shape, **behind) for shape in shapes],
            *both("attention", [UNMASKED_SHAPE, EVEN_SHAPE], **behind),
            *both("attention", [WINDOW_SHAPE, SHORT_WINDOW_SHAPE],
                  libraries=("fa2", "fa4", "flex"), **how),
            *both("attention", [SINK_SHAPE], libraries=("fa4", "flex"), **how),
            *[Case("attention", direction, PACKED_SHAPE, libraries=("fa2", "fa4"),
                   flops=PACKED_FLOPS * (2.5 if direction == "bwd" else 1), **how)
              for direction in BOTH],
            *[Case("attention", "bwd", shape + ANY_ORDER, **older(shape), **behind)
              for shape in ANY_ORDER_SHAPES],
            *[Case("attention", "fwd", shape, libraries=("cudnn", "fa2", "efficient"), dtype="f16",
                   **how) for shape in LENGTH_SHAPES],
            *[Case("attention", "fwd", shape, compiled=False, libraries=("fa2",))
              for shape in [*DECODE_SHAPES, PAGED_SHAPE]]]


CASES = [
    *both("rms_norm", NORM_SHAPES + SMALL_NORM_SHAPES),
    *both("layer_norm", NORM_SHAPES + SMALL_NORM_SHAPES),
    *both("add_rms_norm", ["8192x4096"]),
    *both("rms_norm_swiglu", ["8192x4096", "2048x2048"]),
    *[case for op in GATED for case in both(op, [GATED_SHAPE, SMALL_GATED_SHAPE])],
    *both("silu", [GATED_SHAPE]),
    *both("gelu", [GATED_SHAPE]),
    *both("rope", [HEADS_SHAPE]),
    *both("qk_norm_rope", [HEADS_SHAPE]),
    *both("softmax", SOFTMAX_SHAPES),
    *[Case(op, "fwd", shape) for op, shapes in TINY_SHAPES.items() for shape in shapes],
    *loss_cases(),
    Case("embedding", "fwd", "8192x151936x4096"),
    Case("embedding", "bwd", "8192x151936x4096", events=True),
    Case("adamw", "step", PARAMETERS, bytes=14e9, events=True,
         compiled=False),  # 4 values read, 3 written
    Case("global_norm", "fwd", PARAMETERS, bytes=2e9, events=True, compiled=False),
    *[Case("linear", "fwd", shape, copied=False, compiled=False)
      for shape in ("8192x4096x14336", "4096x4096x4096", "16x4096x14336")],
    *[Case("linear", "bwd", shape, copied=False, compiled=False)
      for shape in ("4096x4096x4096_nodbias", "8192x4096x14336_nodweight_nodbias",
                    "8192x4096x14336_nodx_nodbias")],
    *[Case("linear", direction, f"4096x4096x4096{words}_tf32", copied=False, compiled=False, dtype="f32")
      for direction, words in (("fwd", ""), ("bwd", "_nodweight_nodbias"), ("bwd", "_nodx_nodbias"))],
    *[Case("linear_cross_entropy", "fwdbwd", shape, copied=False, events=True, memory=True)
      for shape in HEAD_SHAPES],
    *attention_cases(),
    *[Case("topk_router", "fwd", shape + "_i64") for shape in ROUTED_SHAPES],
    *[Case("moe_plan", "fwd", shape, bytes=size) for shape, size in PLANNED_SHAPES.items()],
    *[Case(op, "fwd", shape, copied=copied, compiled=False, libraries=libraries, dtype=dtype,
           group="quantised") for op, dtype, shape, copied, libraries in quantised_cases.listed()],
    *[Case(op, direction, shape, copied=False, compiled=False, libraries=libraries, group="products")
      for op, direction, shape, libraries in product_cases.listed()],
]
GROUPS = sorted({case.group for case in CASES if case.group})
