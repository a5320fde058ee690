"""Results in the library of what was given: NumPy, PyTorch, CuPy, JAX, or none of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import _core

# Type of an array -> its library's from_dlpack. Types live as long as their library.
_importers: dict[type, Callable[[Any], Any]] = {}


def _find_importer(array: object) -> Callable[[Any], Any]:
    """The from_dlpack of the library that the array's type belongs to. Nothing is imported: the array's library is."""
    kind = type(array)
    root = sys.modules.get(kind.__module__.split(".")[0])
    importer = getattr(root, "from_dlpack", None)
    if importer is None and hasattr(array, "__array_namespace__"):
        importer = getattr(array.__array_namespace__(), "from_dlpack", None)
    if importer is None:  # a subclass in a module of its own
        for base in kind.__mro__[1:-1]:
            importer = importer or getattr(sys.modules.get(base.__module__.split(".")[0]), "from_dlpack", None)
    if importer is None:
        raise TypeError(f"ids: expected an array whose library has from_dlpack, got {kind}")
    found: Callable[[Any], Any] = importer
    return found


def _numpy_importer() -> Callable[[Any], Any] | None:
    try:
        import numpy  # an optional library
    except ImportError:
        return None
    importer: Callable[[Any], Any] = numpy.from_dlpack
    return importer


def like(given: object, result: _core.Array) -> Any:
    """`result` in the library of `given`, which shares its memory. For lists: NumPy where it is installed."""
    kind = type(given)
    importer = _importers.get(kind)
    if importer is None:
        if kind is _core.Array:
            return result
        if isinstance(given, (list, tuple)):
            numpy = _numpy_importer()
            return result if numpy is None or result.dtype == "bfloat16" else numpy(result)
        importer = _importers[kind] = _find_importer(given)
    if kind.__module__ == "numpy" and result.dtype == "bfloat16":  # which NumPy does not have
        return result
    return importer(result)


def cuda_device(given: object) -> int | None:
    """The GPU that an array lies on, or None."""
    describe = getattr(given, "__dlpack_device__", None)
    kind, index = (1, 0) if describe is None else describe()
    return index if kind in (2, 13) else None


def empty_like(given: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Memory of the library and GPU of `given`."""
    root: Any = sys.modules.get(type(given).__module__.split(".")[0])
    name = getattr(root, "__name__", "")
    if name == "torch":
        return root.empty(shape, dtype=getattr(root, dtype), device=given.device)
    if name == "cupy":
        with given.device:
            return root.empty(shape, dtype=dtype)
    return _core.empty(shape, dtype, cuda_device(given) or 0)


def ids_like(given: Any, rows: Sequence[Sequence[int]], is_one: bool, dtype: str, pad: int) -> Any:
    """Rows of ids, padded to the longest, in the library of `given`."""
    width = max(len(row) for row in rows)
    flat = [number for row in rows for number in [*row, *[pad] * (width - len(row))]]
    shape = (width,) if is_one else (len(rows), width)
    result = like(given, _core.array(flat, shape, dtype))
    index = cuda_device(given)
    if index is not None:  # back to where they came from; the library is there already
        root = sys.modules[type(given).__module__.split(".")[0]]
        if root.__name__ == "torch":
            result = result.to(given.device)
        elif root.__name__ == "cupy":
            result = root.asarray(result)
        else:
            result = sys.modules["jax"].device_put(result, given.device)
    return result
