"""FSDP2's gathering by copy engines: a kernel of NCCL's that gathers takes multiprocessors from the products beside it,
a copy between GPUs takes none. NCCL copies if its policy is to use no blocks of threads and the memory is symmetric: at
the same offset on every GPU (NCCL 2.28, https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/flags.html)."""

import torch
from torch import distributed as dist

try:
    from torch.distributed import _symmetric_memory as symmetric
except ImportError:
    symmetric = None

NEEDED = (2, 28)  # NCCL with copies


def all_reach_each_other():
    devices = range(torch.cuda.device_count())
    return all(torch.cuda.can_device_access_peer(one, other) for one in devices for other in devices if one != other)


def is_possible(device):
    if device != "cuda" or not hasattr(symmetric, "get_mem_pool"):
        return False
    from torch.distributed.fsdp import FSDPModule

    policies = hasattr(dist.ProcessGroupNCCL, "NCCL_CTA_POLICY_ZERO") and torch.cuda.nccl.version() >= NEEDED
    return policies and hasattr(FSDPModule, "set_custom_all_gather") and all_reach_each_other()


def group_options():
    """For init_process_group, which has to know the device, too: symmetric memory wants a communicator that exists."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.cta_policy = dist.ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO
    return {"pg_options": options, "device_id": torch.device("cuda", torch.cuda.current_device())}


class CopyEngineGather:
    """What FSDPModule.set_custom_all_gather takes. The output alone is symmetric: FSDP gathers in place."""

    def __init__(self):
        symmetric.set_backend("NCCL")
        dist.barrier()

    def allocate(self, size, *, dtype, device):
        with torch.cuda.use_mem_pool(symmetric.get_mem_pool(device)):
            return torch.empty(size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        symmetric.rendezvous(output_tensor, group=group.group_name)
        return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)


def use(model):
    """By all units of a model that fully_shard has cut."""
    from torch.distributed.fsdp import FSDPModule

    gather = CopyEngineGather()
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(gather)
