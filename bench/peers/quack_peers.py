"""quack's CuTe DSL kernels, on a GPU, through its functions for users.

Left out are its layer_norm, which has no autograd function, and its linear cross-entropy: with
quack-kernels 0.6.5 and nvidia-cutlass-dsl 4.7.1 or 4.8.1 its module fails when it is imported.
"""

import importlib
import importlib.metadata
import sys

from peers import cutlass_package
from peers.norm_peers import EPS

BUILDERS, ACCURACY = {}, {}  # it has no problems of its own
OTHERS = {"gptoss", "scaled"}  # what it has no form of


def version():
    return cutlass_package.with_version(importlib.metadata.version("quack-kernels"))


def load():
    """The package; None if it is not there."""
    if not cutlass_package.find("quack", "quack"):
        return None
    try:
        return importlib.import_module("quack")
    except (ImportError, AttributeError, TypeError) as error:  # another DSL than it was made for
        print(f"# quack is left out: {error}", file=sys.stderr)
        return None


def variants(quack, op, direction, shape=""):
    """(configuration, function of the op's Formula, whether a graph can capture it) of each way to
    call it; none if quack has no such op, or not in this form."""
    if OTHERS & set(shape.split("_")):
        return []

    def add_norm(x, weight, residual):
        y, total = quack.rmsnorm(x, weight, residual=residual, eps=EPS, prenorm=True)
        return total, y

    if op == "cross_entropy":
        found = [("", quack.cross_entropy, True)]
        if direction == "fwdbwd":
            found.append(("gradient in place", lambda logits, targets: quack.cross_entropy(
                logits, targets, inplace_backward=True), True))
        return found
    found = dict(rms_norm=lambda x, weight: quack.rmsnorm(x, weight, eps=EPS),
                 add_rms_norm=add_norm, softmax=quack.softmax).get(op)
    return [("", found, True)] if found else []
