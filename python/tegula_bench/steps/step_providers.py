"""The providers of a training step: stock transformers and what accelerates it. Each runs in its own process."""

import dataclasses
import functools
from collections.abc import Callable

from .. import liger_package
from ..results.newest_runs import ANY_ORDER

# Under torch.compile, transformers 5.17 makes a dense mask for a whole model, since it cannot rule out packed sequences;
# PyTorch's attention then also computes the masked half. The caller's mask dictionary is passed on unchanged, and None in
# it selects causal attention.
CAUSAL = {"attention_mask": {"full_attention": None}}


@dataclasses.dataclass(frozen=True, eq=False)
class Provider:
    name: str  # also the impl of its rows
    config: str = ""
    ours: bool = False
    prepare: Callable = lambda: None  # before the model is made
    convert: Callable = lambda model: model  # (model) -> what is called in its place
    inputs: dict = dataclasses.field(default_factory=dict)  # beside ids and labels
    checkpoint: Callable = dict  # () -> what torch.utils.checkpoint takes beside use_reentrant
    attention: str = ""  # of transformers; "": the model's


def use_liger(**options):
    def prepare():
        if not liger_package.find():
            raise ModuleNotFoundError("liger: expected the package, or its folder in LIGER_DIR")
        liger_package.use_triton()
        from liger_kernel import transformers as liger

        for family in ("qwen3", "qwen3_moe", "gpt_oss"):
            getattr(liger, f"apply_liger_kernel_to_{family}")(**options)

    return prepare


def keep_compiled_shapes():
    """Raises the limit of recompilations, so that each shape of a sweep is compiled separately."""
    import torch

    for name in ("recompile_limit", "cache_size_limit"):  # the second before PyTorch 2.7
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 64)


def compiled(model):
    import torch

    return torch.compile(model, dynamic=False)


def compiled_layers(model):
    for layer in model.model.layers:
        layer.compile(dynamic=False)
    return model


def keeping_attention():
    """Selective checkpointing: layers keep the outputs of PyTorch's attention and recompute the rest."""
    import torch
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    kinds = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
    kept = [getattr(torch.ops.aten, f"_scaled_dot_product_{kind}").default for kind in kinds]
    return dict(context_fn=functools.partial(create_selective_checkpoint_contexts, kept))


def with_tegula(model):
    import tegula

    tegula.apply_to_model(model)
    return model


def in_any_order(model):
    import tegula

    tegula.allow_nondeterministic()
    return with_tegula(model)


ALL = [
    Provider("hf", "sdpa"),
    Provider("hf_flex", "flex_attention", attention="flex_attention"),
    Provider("compile", "sdpa, whole model, mask {'full_attention': None}", prepare=keep_compiled_shapes, convert=compiled,
             inputs=CAUSAL),
    Provider("compile_kept", "sdpa, whole model, checkpointed layers keep attention", prepare=keep_compiled_shapes,
             convert=compiled, inputs=CAUSAL, checkpoint=keeping_attention),
    Provider("compile_layers", "sdpa, each layer", prepare=keep_compiled_shapes, convert=compiled_layers),
    Provider("liger", "with its fused loss", prepare=use_liger()),
    Provider("liger_noflce", "without its fused loss",
             prepare=use_liger(fused_linear_cross_entropy=False, cross_entropy=False)),
    Provider("tegula", ours=True, convert=with_tegula),
    Provider(ANY_ORDER, "allow_nondeterministic", ours=True, convert=in_any_order),
    Provider("tegula+compile", ours=True, prepare=keep_compiled_shapes, convert=lambda model: compiled(with_tegula(model))),
]  # fmt: skip
PROVIDERS = {provider.name: provider for provider in ALL}
# Providers that may run out of memory come before those that compile for long: others are then ended and restarted.
USUAL = ["hf", "liger", "liger_noflce", "compile", "tegula", "tegula+compile"]
TIMED = [*USUAL, ANY_ORDER]
# Sparse models: GPT-OSS has no sdpa, and a compiled whole takes minutes.
SPARSE_TIMED = {"gpt-oss": ["hf", "hf_flex", "liger", "tegula"], "qwen3-moe": ["hf", "liger", "tegula"]}
EVALUATED = ["hf", "hf_flex", "tegula"]


# ---- optimisers ----

OPTIMISERS = {"torch": "torch AdamW", "tegula": "tegula.optim.AdamW"}
LEARNING_RATE = 1e-4


def make_optimiser(name, parameters):
    import torch

    if name == "torch":
        return torch.optim.AdamW(parameters, lr=LEARNING_RATE, fused=True)
    from tegula.optim import AdamW

    return AdamW(parameters, lr=LEARNING_RATE)


@dataclasses.dataclass(frozen=True)
class Entrant:
    """A provider with an optimiser: the subject of a row."""

    provider: Provider
    optimiser: str = "torch"

    @property
    def config(self):
        return ", ".join(word for word in (self.provider.config, OPTIMISERS[self.optimiser]) if word)

    def config_of(self, case):
        """With what the case decides: the depth, and the attention of models without sdpa."""
        layers = f"{case.layers} layers, " if case.layers else ""
        return layers + self.config.replace("sdpa", case.size.attention)

    @property
    def name(self):
        return f"{self.provider.name} ({self.config})"

    @property
    def key(self):
        """Identifies its rows of a model that is whole: impl, config."""
        return self.provider.name, self.config

    def key_of(self, case):
        return self.provider.name, self.config_of(case)


def entrants(names, optimisers):
    """Peers use torch's optimiser, ours each of the given ones; a provider that is not judged uses the last one."""

    def of(provider):
        if not provider.ours:
            return ["torch"]
        return optimisers[-1:] if provider.name == ANY_ORDER else optimisers

    return [Entrant(PROVIDERS[name], optimiser) for name in names for optimiser in of(PROVIDERS[name])]
