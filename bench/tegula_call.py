"""Calls libtegula through its op table: every args struct is packed from the offsets and kinds that
tg_op_info gives, every constant is read from the public headers. Nothing of an op is typed here."""

import ctypes
import pathlib
import re

import torch


class Slot(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("role", ctypes.c_int),
                ("layout", ctypes.c_int), ("ndim", ctypes.c_int32), ("dtypes", ctypes.c_uint32),
                ("optional", ctypes.c_bool), ("alias", ctypes.c_char_p),
                ("offset", ctypes.c_size_t)]


class Op(ctypes.Structure):
    _fields_ = [("op", ctypes.c_char_p), ("dir", ctypes.c_char_p), ("name", ctypes.c_char_p),
                ("args_bytes", ctypes.c_size_t), ("num_slots", ctypes.c_size_t),
                ("slots", ctypes.POINTER(Slot)),
                ("run", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)),
                ("workspace", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                               ctypes.POINTER(ctypes.c_size_t)))]


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("device", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("reserved", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 6), ("stride", ctypes.c_int64 * 6)]


class Options(ctypes.Structure):
    _fields_ = [("backend", ctypes.c_int), ("device_index", ctypes.c_int32),
                ("num_threads", ctypes.c_int32), ("reserved", ctypes.c_int32),
                ("entry", ctypes.c_char_p)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 508)]


def read_constants(include):
    """TG_NAME -> value of every enumerator in the headers."""
    constants = {}
    for header in pathlib.Path(include, "tegula").glob("*.h"):
        text = header.read_text()
        for name, value in re.findall(r"\b(TG_\w+)\s*=\s*(\d+)", text):
            constants[name] = int(value)
        for name, value in re.findall(r"^\s*X\((\w+), (\d+),", text, re.M):
            constants["TG_" + name] = int(value)
    return constants


SCALARS = {"TG_KIND_F32": ctypes.c_float, "TG_KIND_F64": ctypes.c_double,
           "TG_KIND_I32": ctypes.c_int32, "TG_KIND_I64": ctypes.c_int64,
           "TG_KIND_BOOL": ctypes.c_bool, "TG_KIND_ENUM": ctypes.c_int}


class Library:
    """libtegula.so with one context. `backend`: "CPU", "REF" or "CUDA" (GPU 0; tensors and
    workspaces are in its memory, calls on the stream of use_stream)."""

    def __init__(self, path, include, threads, backend="CPU", entry=None):
        self.lib = ctypes.CDLL(str(path))
        self.device = "cuda" if backend == "CUDA" else "cpu"
        self.constants = read_constants(include)
        self.kinds = {value: name for name, value in self.constants.items()
                      if name.startswith("TG_KIND_")}
        self.dtypes = {getattr(torch, t): self.constants["TG_" + name] for t, name in
                       [("float32", "F32"), ("float16", "F16"), ("bfloat16", "BF16"),
                        ("float64", "F64"), ("int32", "I32"), ("int64", "I64"),
                        ("int8", "I8"), ("uint8", "U8"), ("float8_e4m3fn", "F8_E4M3")]}
        lib = self.lib
        lib.tg_op_find.restype = ctypes.POINTER(Op)
        lib.tg_op_find.argtypes = [ctypes.c_char_p]
        lib.tg_op_at.restype = ctypes.POINTER(Op)
        lib.tg_op_at.argtypes, lib.tg_op_count.restype = [ctypes.c_size_t], ctypes.c_size_t
        for name in ("tg_context_message", "tg_context_entry", "tg_version"):
            getattr(lib, name).restype = ctypes.c_char_p
        for name in ("tg_context_message", "tg_context_entry", "tg_context_prepare",
                     "tg_context_check"):
            getattr(lib, name).argtypes = [ctypes.c_void_p]
        lib.tg_context_set_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        options = Options(backend=self.constants["TG_BACKEND_" + backend], num_threads=threads,
                          entry=entry.encode() if entry else None)
        self.ctx, error = ctypes.c_void_p(), Error()
        if lib.tg_context_create(ctypes.byref(options), ctypes.byref(self.ctx),
                                 ctypes.byref(error)):
            raise RuntimeError(error.text.decode())
        self.demand(lib.tg_context_prepare(self.ctx))

    def use_stream(self, stream):
        """Later calls go to this torch.cuda.Stream."""
        self.demand(self.lib.tg_context_set_stream(self.ctx, stream.cuda_stream))

    def allow_overlap(self):
        """Kernels of later calls may begin while the one ahead runs, which must not write their packed weight."""
        self.demand(self.lib.tg_context_allow_overlap(self.ctx, ctypes.c_bool(True)))

    def wait(self):
        """Waits for the calls and reports what their kernels found wrong with the data."""
        self.demand(self.lib.tg_context_check(self.ctx))

    def demand(self, status):
        if status:
            raise RuntimeError(self.message())

    @property
    def entry(self):
        return self.lib.tg_context_entry(self.ctx).decode()

    @property
    def version(self):
        return self.lib.tg_version().decode()

    def message(self):
        return self.lib.tg_context_message(self.ctx).decode()

    def op(self, name):
        found = self.lib.tg_op_find(name.encode())
        if not found:
            raise KeyError(f"no op {name}")
        return found.contents

    def names(self):
        """Every row of the table: "rms_norm_fwd", ..."""
        return [self.lib.tg_op_at(i).contents.name.decode() for i in range(self.lib.tg_op_count())]

    def view(self, tensor):
        if tensor.dim() > 6:
            raise ValueError("a view has at most 6 axes")
        view = View(data=tensor.data_ptr(), dtype=self.dtypes[tensor.dtype], ndim=tensor.dim())
        for axis in range(tensor.dim()):
            view.shape[axis] = tensor.shape[axis]
            view.stride[axis] = tensor.stride(axis)
        return view

    def call(self, name, fields):
        return Call(self, self.op(name), fields)


class Call:
    """One call with its arguments packed. `fields`: slot name -> torch tensor, list of tensors,
    number, or the name of an enumerator; slots that are not named are absent or zero. Tensors are
    kept alive; the workspace is allocated here."""

    def __init__(self, library, op, fields):
        self.library, self.op, self.fields = library, op, dict(fields)
        self.memory = ctypes.create_string_buffer(op.args_bytes)
        self.keep = []
        self.roles = {}
        slots = {op.slots[i].name.decode(): op.slots[i] for i in range(op.num_slots)}
        lists = [v for v in fields.values() if isinstance(v, (list, tuple))]
        if lists and "num_tensors" in slots:
            self.fields.setdefault("num_tensors", len(lists[0]))
        for name, value in self.fields.items():
            if name not in slots:
                raise KeyError(f"{op.name.decode()} has no argument {name}")
            self.put(slots[name], library.kinds[slots[name].kind], value)
            if slots[name].role:
                self.roles[name] = slots[name].role
        self.attach_workspace(slots)

    def put(self, slot, kind, value):
        if kind == "TG_KIND_TENSOR":
            packed = self.library.view(value)
        elif kind == "TG_KIND_TENSOR_LIST":
            views = (View * max(len(value), 1))(*[self.library.view(t) for t in value])
            self.keep.append(views)
            packed = ctypes.c_void_p(ctypes.addressof(views))
        else:
            if isinstance(value, str):
                value = self.library.constants[value]
            packed = SCALARS[kind](value)
        self.write(slot.offset, packed)

    def write(self, offset, packed):
        ctypes.memmove(ctypes.byref(self.memory, offset), ctypes.byref(packed),
                       ctypes.sizeof(packed))

    def attach_workspace(self, slots):
        size = ctypes.c_size_t()
        self.library.demand(self.op.workspace(self.library.ctx, ctypes.addressof(self.memory),
                                              ctypes.byref(size)))
        self.workspace_bytes = size.value
        if size.value:
            block = torch.zeros(size.value + 256, dtype=torch.uint8,
                                device=self.library.device)
            self.keep.append(block)
            start = (block.data_ptr() + 255) // 256 * 256
            self.write(slots["workspace"].offset, ctypes.c_void_p(start))
            self.write(slots["workspace_bytes"].offset, size)

    def __call__(self):
        self.library.demand(self.op.run(self.library.ctx, ctypes.addressof(self.memory)))

    def outputs(self):
        """Slot name -> tensor or list, of every slot that the call writes."""
        read_only = self.library.constants["TG_ROLE_IN"]
        return {name: self.fields[name] for name, role in self.roles.items() if role != read_only}
