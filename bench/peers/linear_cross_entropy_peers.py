"""Peer of the linear head with its loss: PyTorch's cross_entropy(linear(...)).

Extra memory is the growth of a process's peak less the gradients. Running this file prints it:
linear_cross_entropy_peers.py ROWSxHIDDENxVOCAB. (A tuned allocator keeps what is freed, and would
count against it.)
"""

import math
import os
import pathlib
import re
import subprocess
import sys

import torch
import torch.nn.functional as F

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from peers.peer_problem import Formula, torch_problem  # noqa: E402
from tegula_bench.model_formulas import loss_of_hidden  # noqa: E402


def shared_fields(words, dtype):
    rows, size, vocab = words.extents
    hidden = torch.randn(rows, size, dtype=dtype)
    weight = torch.randn(vocab, size, dtype=dtype) / math.sqrt(size)
    return dict(hidden=hidden, weight=weight, targets=torch.randint(vocab, (rows,)),
                reduction="TG_REDUCTION_MEAN", chunk_rows=words.number("r", 0),
                chunk_cols=words.number("c", 0))


def gradient_fields(words, fields):
    wide = torch.float32 if words.flag("dwf32") else fields["weight"].dtype
    fields.update(dloss=torch.ones(1), overwrite=words.flag("overwrite"),
                  dhidden=torch.empty_like(fields["hidden"]),
                  dweight=torch.zeros(fields["weight"].shape, dtype=wide))
    if not words.flag("nodbias"):
        fields["dbias"] = torch.zeros(fields["weight"].shape[0], dtype=fields["weight"].dtype)
    return fields


def linear_loss(hidden, weight, targets):
    return F.cross_entropy(F.linear(hidden, weight), targets)


def formula_of(fields, **more):
    inputs = {name: fields[name] for name in ("hidden", "weight")}
    return Formula(linear_loss, inputs, ("loss",), fixed=(fields["targets"],),
                   models_code=loss_of_hidden, **more)


def linear_cross_entropy(words, backward, dtype):
    fields = shared_fields(words, dtype)
    if not backward:
        words.done()
        fields["loss"] = torch.empty(1)
        return torch_problem(fields, formula_of(fields))
    gradient_fields(words, fields)
    words.done()
    fields["lse"] = torch.logsumexp(fields["hidden"].float() @ fields["weight"].float().t(), -1)
    return torch_problem(fields, formula_of(fields, incoming=(torch.ones((), dtype=dtype),)))


def linear_cross_entropy_fwdbwd(words, backward, dtype):
    """Forward and backward, as in a training step."""
    del backward
    fields = gradient_fields(words, shared_fields(words, dtype))
    shape = "x".join(map(str, words.extents))
    words.done()
    fields.update(loss=torch.empty(1), lse=torch.empty(fields["hidden"].shape[0]))
    problem = torch_problem(fields, formula_of(fields, both=True))
    if dtype == torch.float32 and fields["hidden"].device.type == "cpu":
        environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
        problem.peers[0].extra_bytes = lambda: int(subprocess.run(
            [sys.executable, __file__, shape], check=True, capture_output=True, text=True,
            env=environment).stdout)
    return problem


BUILDERS = dict(linear_cross_entropy=linear_cross_entropy,
                linear_cross_entropy_fwdbwd=linear_cross_entropy_fwdbwd)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "linear_cross_entropy_fwd": ["64x256x2003"],
    "linear_cross_entropy_bwd": ["64x256x2003"],
    "linear_cross_entropy_fwdbwd": ["64x256x2003", "64x256x2003_dwf32_nodbias"],
}


def peak_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return 1024 * int(re.search(r"VmHWM:\s*(\d+)", status.read()).group(1))


def main():
    from shape_words import Words
    fields = shared_fields(Words(sys.argv[1]), torch.float32)
    small = shared_fields(Words("8x8x8"), torch.float32)
    formula_of(small, both=True).caller()()  # what PyTorch loads and starts once
    before = peak_bytes()
    result = formula_of(fields, both=True).caller()()
    print(peak_bytes() - before - sum(t.numel() * t.element_size() for t in result.values()))


if __name__ == "__main__":
    main()
