"""FSDP2's all-gather by copy engines. A gather kernel of NCCL occupies multiprocessors that the concurrent products need;
a copy between GPUs occupies none. NCCL uses copy engines if its policy is zero thread blocks and the memory is symmetric,
at the same offset on every GPU (NCCL 2.28, https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/flags.html)."""

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
    """Options for init_process_group, which also needs the device: symmetric memory requires an existing communicator."""
    options = dist.ProcessGroupNCCL.Options()
    options.config.cta_policy = dist.ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO
    return {"pg_options": options, "device_id": torch.device("cuda", torch.cuda.current_device())}


class CopyEngineGather:
    """For FSDPModule.set_custom_all_gather. Only the output is in symmetric memory, since FSDP gathers in place."""

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
    """Sets it for all FSDP units of a model."""
    from torch.distributed.fsdp import FSDPModule

    gather = CopyEngineGather()
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(gather)
