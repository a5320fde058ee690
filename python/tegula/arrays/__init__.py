"""The ops as functions of any array that speaks DLPack: NumPy, CuPy, JAX, PyTorch, tegula.Array.

There is a function for every entry of the op table: `rms_norm` and `rms_norm_bwd`, `cross_entropy`, `cross_entropy_bwd` and
`cross_entropy_fwdbwd`, `adamw_step`, ... Inputs, shapes and layouts are those of the contract in `include/tegula/`, but that
[rows, cols] stands for any leading axes, and scalars have the defaults of tegula.ops. Results are arrays of the library of
the first input, on its device, and the call makes its own workspace:

    y, rstd = tegula.arrays.rms_norm(x, weight, eps=1e-6, results=("y", "rstd"))
    dx, dweight = tegula.arrays.rms_norm_bwd(dy, x, weight, rstd)

results: the names of what to compute, by default all that the contract does not call optional, and every gradient. An
output that is given by name (`y=array`) is written, or added to where the contract says `acc`, instead of a new array.
There is no automatic differentiation here; tegula.ops has it for PyTorch.
"""

from .. import _core
from .array_call import ArrayFunction

_functions = {function.name: function for function in map(ArrayFunction, _core.ops())}
globals().update(_functions)
__all__ = sorted(_functions)


def __dir__() -> list[str]:
    return __all__
