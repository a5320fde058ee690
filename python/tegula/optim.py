"""Optimisers with the interface of `torch.optim`."""

import torch

from .ops.list_ops import adamw_step
from .sharding import local

# Options that a group of torch.optim.AdamW has; of those refused only False is accepted.
OPTIONS = {"amsgrad": False, "maximize": False, "foreach": None, "capturable": False, "differentiable": False, "fused": None}
REFUSED = ("amsgrad", "capturable", "differentiable")
STATE_DTYPES = (None, torch.float32, torch.float16, torch.bfloat16)


def check_options(group):
    for name in REFUSED:
        if group.get(name):
            raise NotImplementedError(f"tegula.optim.AdamW: {name}: expected False, got {group[name]!r}; see torch.optim.AdamW")


class AdamW(torch.optim.Optimizer):
    """torch.optim.AdamW with every tensor of a group in one launch; tegula/adamw.h. Their state_dicts are
    interchangeable. Params and gradients are f32, f16 or bf16, each with its own dtype, dense, in any order of axes.

    state_dtype: dtype of exp_avg and exp_avg_sq; None means the param's. In 16 bits exp_avg_sq is coarse, see the
    header.
    master_weights: keeps an f32 copy of each 16-bit param as `master` in its state and updates that. Without it,
    updates below half a unit in the last place of a param are lost.

    foreach and fused choose the code of torch.optim.AdamW; here they are accepted and change nothing. amsgrad, capturable
    (a step that a CUDA graph repeats) and differentiable are refused. A tensor as lr is read from its device in each step.
    step(clip=...) multiplies the gradients by a factor on the device, such as
    `tegula.ops.global_norm(grads, max_norm)[1]`, without another pass over them."""

    def __init__(
        self, params, lr: float | torch.Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
        state_dtype: torch.dtype | None = None, master_weights: bool = False,
    ):  # fmt: skip
        options = {"amsgrad": amsgrad, "maximize": maximize, "foreach": foreach, "capturable": capturable,
                   "differentiable": differentiable, "fused": fused}  # fmt: skip
        numbers = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        check_numbers(numbers)
        check_options(options)
        numbers["betas"] = tuple(map(float, betas))
        if state_dtype not in STATE_DTYPES:
            raise TypeError(f"tegula.optim.AdamW: state_dtype: expected None, float32, float16 or bfloat16, got {state_dtype}")
        self.state_dtype, self.master_weights = state_dtype, master_weights
        super().__init__(params, {**numbers, **options, "decoupled_weight_decay": True})

    def add_param_group(self, group):
        whole = {**self.defaults, **group}
        check_numbers(whole)
        check_options(whole)
        super().add_param_group(group)
        for param in self.param_groups[-1]["params"]:
            if param.is_complex() or param.layout is not torch.strided:
                self.param_groups.pop()
                raise TypeError(
                    f"tegula.optim.AdamW: params: expected dense real tensors, got {param.dtype} of layout {param.layout}"
                )

    def __getstate__(self):
        return {**super().__getstate__(), "state_dtype": self.state_dtype, "master_weights": self.master_weights}

    # ---- the step ----

    def new_state(self, param):
        def zeros():
            return torch.zeros_like(param, dtype=self.state_dtype, memory_format=torch.preserve_format)

        state = {"step": torch.tensor(0.0), "exp_avg": zeros(), "exp_avg_sq": zeros()}
        if self.keeps_master(param):
            state["master"] = param.detach().float()
        return state

    def keeps_master(self, param):
        return self.master_weights and param.dtype in (torch.float16, torch.bfloat16)

    def batches(self, group):
        """Params with gradients, grouped for one call of the op each: by step, device and presence of masters."""
        found = {}
        for param in group["params"]:
            if param.grad is None:
                continue
            if param.grad.layout is not torch.strided:
                raise RuntimeError("tegula.optim.AdamW: grad: expected a dense gradient, got a sparse one")
            state = self.state[param]
            if not state:
                state.update(self.new_state(param))
            key = (int(state["step"].item()) + 1, param.device, "master" in state)
            found.setdefault(key, []).append(param)
        return found

    @torch.no_grad()
    def step(self, closure=None, *, clip: torch.Tensor | None = None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for (step, _, masters), params in self.batches(group).items():
                states = [self.state[param] for param in params]
                adamw_step(
                    [local(param) for param in params], [local(param.grad) for param in params],
                    [local(state["exp_avg"]) for state in states], [local(state["exp_avg_sq"]) for state in states],
                    step=step, lr=float(group["lr"]), beta1=beta1, beta2=beta2, eps=group["eps"],
                    weight_decay=group["weight_decay"], clip=clip, grad_scale=-1.0 if group["maximize"] else None,
                    master=[local(state["master"]) for state in states] if masters else None,
                )  # fmt: skip
                for state in states:
                    state["step"] += 1
        return loss

    # ---- the state ----

    def load_state_dict(self, state_dict):
        """Also accepts the state_dict of torch.optim.AdamW. Values are converted to this optimiser's dtypes; a missing
        `master` is copied from its param."""
        for group in state_dict["param_groups"]:
            check_options({**group, "capturable": False})  # which chooses where the step is kept
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group.update({**OPTIONS, **group, "capturable": False})
        self.restore_dtypes(state_dict)

    def restore_dtypes(self, state_dict):
        """Undoes the conversion of torch.optim to the param's dtype, which may be narrower than the saved one."""
        saved_ids = [index for group in state_dict["param_groups"] for index in group["params"]]
        params = [param for group in self.param_groups for param in group["params"]]
        for index, param in zip(saved_ids, params):
            saved, state = state_dict["state"].get(index), self.state.get(param)
            if not saved or not state:
                continue
            state["step"] = torch.tensor(float(saved["step"]))
            dtype = self.state_dtype or param.dtype
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = saved[name].to(param.device, dtype, copy=True)
            if self.keeps_master(param):
                master = saved.get("master", param.detach())
                state["master"] = master.to(param.device, torch.float32, copy=True)
            else:
                state.pop("master", None)


def as_number(name, value):
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise ValueError(f"tegula.optim.AdamW: {name}: expected a number or a tensor of one element, got {list(value.shape)}")
    return float(value)


def check_numbers(group):
    betas = [as_number("betas", beta) for beta in group["betas"]]
    bounds = {
        "lr": 0 <= as_number("lr", group["lr"]), "eps": 0 <= group["eps"], "weight_decay": 0 <= group["weight_decay"],
        "betas": len(betas) == 2 and all(0 <= beta < 1 for beta in betas),
    }  # fmt: skip
    rules = {"lr": ">= 0", "eps": ">= 0", "weight_decay": ">= 0", "betas": "two numbers from 0 on and below 1"}
    for name, holds in bounds.items():
        if not holds:
            raise ValueError(f"tegula.optim.AdamW: {name}: expected {rules[name]}, got {group[name]}")
