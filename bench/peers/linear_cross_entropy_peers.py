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

from peers.peer_problem import Peer, Problem, gradients, torch_peer  # noqa: E402


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


def loss_of(fields):
    targets = fields["targets"]
    return lambda hidden, weight: F.cross_entropy(F.linear(hidden, weight), targets)


def linear_cross_entropy(words, backward, dtype):
    fields = shared_fields(words, dtype)
    hidden, weight = fields["hidden"], fields["weight"]
    if not backward:
        words.done()
        fields["loss"] = torch.empty(1)
        return Problem(fields, [torch_peer(lambda: loss_of(fields)(hidden, weight)[None], "loss")])
    gradient_fields(words, fields)
    words.done()
    fields["lse"] = torch.logsumexp((hidden.float() @ weight.float().t()), -1)
    run = gradients(loss_of(fields), dict(hidden=hidden, weight=weight),
                    torch.ones((), dtype=dtype))
    return Problem(fields, [Peer("torch", run)])


def step(fields):
    """Forward and backward, as in a training step."""
    hidden, weight = (fields[name].detach().requires_grad_() for name in ("hidden", "weight"))

    def run():
        loss = loss_of(fields)(hidden, weight)
        dhidden, dweight = torch.autograd.grad(loss, (hidden, weight))
        return {"loss": loss.detach()[None], "dhidden": dhidden, "dweight": dweight}

    return run


def linear_cross_entropy_fwdbwd(words, backward, dtype):
    del backward
    fields = gradient_fields(words, shared_fields(words, dtype))
    shape = "x".join(map(str, words.extents))
    words.done()
    fields.update(loss=torch.empty(1), lse=torch.empty(fields["hidden"].shape[0]))
    peer = Peer("torch", step(fields))
    if dtype == torch.float32:
        environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
        peer.extra_bytes = lambda: int(subprocess.run(
            [sys.executable, __file__, shape], check=True, capture_output=True, text=True,
            env=environment).stdout)
    return Problem(fields, [peer])


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
    step(small)()  # what PyTorch loads and starts once
    before = peak_bytes()
    result = step(fields)()
    print(peak_bytes() - before - sum(t.numel() * t.element_size() for t in result.values()))


if __name__ == "__main__":
    main()
