"""What PyTorch computes with a tiny model: the golden values of tests/model/test_model_golden.c.

  model/config.json, model/model.safetensors   as transformers saves them
  expected.safetensors                         ids, targets, logits, loss, one gradient per parameter ("grad.<name>"),
                                               greedy tokens after a prompt, the losses of 50 AdamW steps
"""

import math

import torch
from safetensors.torch import save_file

BATCH, SEQ, STEPS, VOCAB, POSITIONS = 3, 17, 50, 67, 24
LR, MIN_LR, WARMUP, BETAS, EPS, DECAY, CLIP = 3e-3, 3e-4, 5, (0.9, 0.95), 1e-8, 0.1, 1.0


def learning_rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * progress))


def loss_of(model, ids, targets):
    logits = model(ids).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def is_vector(name, p):
    """Biases and norms; biases of experts have two axes."""
    return p.ndim == 1 or name.endswith("_bias")


def loss_curve(model, ids, targets):
    decayed = [p for name, p in model.named_parameters() if not is_vector(name, p)]
    others = [p for name, p in model.named_parameters() if is_vector(name, p)]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}], lr=LR, betas=BETAS, eps=EPS)
    losses = []
    for step in range(1, STEPS + 1):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step)
        optimiser.zero_grad()
        _, loss = loss_of(model, ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def write(directory, model_class, config, seed, in_files=("", "")):
    """in_files: a part of parameters' names, and what is in its place in model.safetensors."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = model_class(config).eval()
    if hasattr(config, "num_experts_per_tok"):
        model.set_experts_implementation("eager")  # grouped_mm wants widths of whole 16 bytes
    with torch.no_grad():  # biases and norms away from 0 and 1, so that none can be forgotten unnoticed
        for name, p in model.named_parameters():
            if is_vector(name, p):
                p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(directory / "model")
    (directory / "model" / "generation_config.json").unlink(missing_ok=True)

    ids = torch.randint(0, VOCAB, (BATCH, SEQ))
    targets = torch.randint(0, VOCAB, (BATCH, SEQ))
    out = {"ids": ids.int(), "targets": targets.int()}
    logits, loss = loss_of(model, ids, targets)
    loss.backward()
    out["logits"], out["loss"] = logits.detach(), loss.detach().reshape(1)
    for name, p in model.named_parameters():
        out["grad." + name.replace(*in_files)] = p.grad.clone()

    prompt = ids[:1, :5]
    greedy = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=POSITIONS - 5, do_sample=False, eos_token_id=None, pad_token_id=VOCAB - 1)
    out["greedy"] = greedy[0].int()
    out["losses"] = loss_curve(model, ids, targets)
    save_file({k: v.contiguous() for k, v in out.items()}, directory / "expected.safetensors")
