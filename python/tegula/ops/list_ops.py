"""`tegula.ops`: ops on lists of tensors: the optimiser's step, the norm of all gradients."""

from collections.abc import Iterable, Sequence

import torch

from .. import _core
from ..autograd.conventions import expect_tensor
from ..autograd.table_entry import TABLE, allocate_bytes, run_stock
from ..sharding import local, norms_of_all

Tensors = Sequence[torch.Tensor]

ADAMW = TABLE["adamw_step"][0]
GLOBAL_NORM = TABLE["global_norm_fwd"][0]


# ---- memory order ----


def memory_order(tensor):
    """The axes from the outermost in memory to the innermost."""
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)


def in_memory_order(tensor):
    """The elements as a contiguous tensor: a view if they lie densely in any order of axes, else a copy."""
    return tensor if tensor.is_contiguous() else tensor.permute(memory_order(tensor)).contiguous()


def align(lists):
    """Replaces tensors that are not contiguous, in {name: list} with params first: by views in the order of their param's
    memory, else by copies. Returns [(tensor, copy)] of the copies that are written."""
    copies = []
    for index, param in enumerate(lists["params"]):
        beside = {name: tensors[index] for name, tensors in lists.items() if index < len(tensors)}
        if all(tensor.is_contiguous() for tensor in beside.values()):
            continue
        order = memory_order(param)
        for name, tensor in beside.items():
            place = f"adamw_step: {name}[{index}]"
            if tensor.shape != param.shape:
                raise ValueError(f"{place}: expected {list(param.shape)}, got {list(tensor.shape)}")
            if name != "grads" and any(n > 1 and stride == 0 for n, stride in zip(tensor.shape, tensor.stride())):
                raise ValueError(f"{place}: expected elements that lie apart, got strides {tensor.stride()}")
            view = tensor.detach().permute(order)
            lists[name][index] = view.contiguous()
            if name != "grads" and lists[name][index] is not view:
                copies.append((view, lists[name][index]))
    return copies


# ---- the functions ----


def adamw_step(
    params: Tensors, grads: Tensors, exp_avg: Tensors, exp_avg_sq: Tensors, *, step: int, lr: float,
    beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 1e-2,
    master: Tensors | None = None, clip: torch.Tensor | None = None, grad_scale: float | None = None,
) -> None:  # fmt: skip
    """One step of AdamW on lists of tensors, in place and in one launch; tegula/adamw.h. `master`: f32 copies of
    16-bit params. `clip`: a factor for the gradients, [1] f32 on the device, as `global_norm` returns it. Tensors that lie
    densely in another order of axes, such as transposed ones, are updated in place where the lists agree; others are copied
    and written back. Betas and eps may be 0."""
    lists = {"params": params, "grads": grads, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "master": master or ()}
    lists = {name: list(tensors) for name, tensors in lists.items()}
    for name, tensors in lists.items():
        for index, tensor in enumerate(tensors):
            expect_tensor("adamw_step", f"{name}[{index}]", tensor)
    changed = [tensor for name, tensors in lists.items() if name != "grads" for tensor in tensors]
    copies = align(lists)
    *needed, master = lists.values()
    _core.run(
        ADAMW, *needed, master or None, clip, step, lr, beta1, beta2, eps, weight_decay, grad_scale,
        grad_scale is not None, True,
    )  # fmt: skip
    for tensor, copy in copies:
        tensor.copy_(copy)
    torch.autograd.graph.increment_version(changed)


def global_norm(
    tensors: Iterable[torch.Tensor], max_norm: float | None = None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The 2-norm of all elements of a list, [1] f32; tegula/global_norm.h. With max_norm also the clipping factor
    min(1, max_norm / (norm + 1e-6)), which is NaN if the norm is infinite or NaN. No gradient. For distributed tensors
    it is the norm over all processes, and all of them must call it. A list with f64 tensors on a GPU is PyTorch's to add
    up."""
    tensors = list(tensors)
    if any(hasattr(tensor, "to_local") for tensor in tensors):
        tensors = norms_of_all([tensor.detach() for tensor in tensors], global_norm, "global_norm")
    tensors = [in_memory_order(expect_tensor("global_norm", f"tensors[{i}]", tensor)) for i, tensor in enumerate(tensors)]
    like = tensors[0] if tensors else torch.empty(0)
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    if run_stock(*tensors):
        return norm_in_pytorch(tensors, dtype, max_norm)
    norm = torch.empty(1, dtype=dtype, device=like.device)
    clip = None if max_norm is None else torch.empty_like(norm)
    _core.run(
        GLOBAL_NORM, tensors, norm, clip, max_norm or 0.0, lambda count: allocate_bytes(like.device, count)
    )
    return norm if clip is None else (norm, clip)


def norm_in_pytorch(tensors, dtype, max_norm):
    wide = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
    norms = [torch.linalg.vector_norm(tensor.detach(), dtype=wide) for tensor in tensors]
    norm = torch.linalg.vector_norm(torch.stack(norms)).reshape(1).to(dtype)
    if max_norm is None:
        return norm
    return norm, torch.where(norm.isfinite(), (max_norm / (norm + 1e-6)).clamp(max=1.0), torch.nan)


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0,
    error_if_nonfinite: bool = False, foreach: bool | None = None,
) -> torch.Tensor:  # fmt: skip
    """torch.nn.utils.clip_grad_norm_ with the norm in one launch, in f32 for gradients of any dtype; where there are f64
    ones on a GPU, PyTorch computes it in f64. norm_type: 2. Gradients on several devices are refused. For distributed
    ones it returns the norm over all processes as a plain tensor."""
    if float(norm_type) != 2.0:
        raise NotImplementedError(f"clip_grad_norm_: norm_type: expected 2, got {norm_type}")
    if foreach is not None:
        raise ValueError(f"clip_grad_norm_: foreach: expected None, got {foreach}")
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not grads:
        return torch.tensor(0.0)
    grads = [grad.detach() for grad in grads]
    norm = global_norm(grads)[0]
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(f"clip_grad_norm_: expected a finite norm, got {norm.item()}; leave error_if_nonfinite out "
                           "to scale the gradients anyway")  # fmt: skip
    factor = (float(max_norm) / (norm + 1e-6)).clamp(max=1.0)
    for grad in map(local, grads):
        grad.mul_(factor.to(grad.dtype) if grad.is_cuda else factor)
    return norm
