"""The process of one peer of decode_speed.py: decode_peer.py KIND:MODEL DEVICE

hf        tokens of transformers' model class, the step compiled with reduced overhead (CUDA graphs),
          argmax on the device and fed back, without generate()
training  forward passes of the patched model as in training: layers alone, for a prompt has one row of
          logits, and with what the backward needs saved

Compiles at once, then reads requests and answers each with a line of JSON, as step_worker.py does."""

import json
import os
import sys
import time

import torch

from tegula_bench.model_sizes import SIZES
from tegula_bench.steps.step_worker import first_line, version_of

DEPTH, TOKENS, PROMPT = 512, 128, 2048
VOCAB = {"gpt2": 50257, "gpt2-tiny": 320}
GPT2_TINY = dict(n_layer=2, n_embd=64, n_head=2)  # for tests


def make_model(name, device, attention):
    from transformers import AutoModelForCausalLM, GPT2Config
    config = (GPT2Config(vocab_size=VOCAB[name], **(GPT2_TINY if name.endswith("tiny") else {}))
              if name in VOCAB else SIZES[name].config())
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16,
                                                attn_implementation=attention)


def vocabulary(name):
    return VOCAB.get(name) or SIZES[name].vocabulary


class Tokens:
    """Tokens behind DEPTH others, in a static cache that has room for no more."""

    provider, config = "hf", "static cache; torch.compile reduce-overhead"

    def __init__(self, name, device, depth=DEPTH, tokens=TOKENS):
        from transformers import StaticCache
        self.depth, self.tokens, self.device = depth, tokens, device
        self.net = make_model(name, device, "sdpa").eval()
        self.cache = StaticCache(config=self.net.config, max_cache_len=depth + tokens)
        self.first = torch.randint(vocabulary(name), (1, depth), device=device)
        with torch.no_grad():
            self.net(self.first, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.fast = torch.compile(self.step, mode="reduce-overhead")
        self.run()

    def step(self, token):
        logits = self.net(token, past_key_values=self.cache, use_cache=True).logits
        return logits[:, -1:].argmax(-1)

    def run(self):
        """Seconds of a token; and the ids."""
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.depth)
        token, ids = self.first[:, :1].clone(), []
        with torch.no_grad():
            wait(self.device)
            start = time.perf_counter()
            for _ in range(self.tokens):
                torch.compiler.cudagraph_mark_step_begin()
                token = self.fast(token).clone()
                ids.append(token)
            wait(self.device)
        return (time.perf_counter() - start) / self.tokens, torch.cat(ids).flatten().tolist()

    def time(self, runs):
        return {"seconds": [self.run()[0] for _ in range(runs)]}


class Training:
    """Forward passes over PROMPT tokens, called from Python, or replayed as a CUDA graph if the passes can
    be recorded: whichever is faster."""

    provider, config = "tegula", "layers of the patched model; what the backward needs is saved"

    def __init__(self, name, device, prompt=PROMPT):
        import tegula
        tegula.apply()
        self.device = device
        self.trunk = make_model(name, device, "sdpa").train().model
        self.ids = torch.randint(vocabulary(name), (1, prompt), device=device)
        self.calls = {"eager": self.run}
        self.run()
        if device == "cuda":
            torch.cuda.empty_cache()
            self.record()

    def run(self):
        return self.trunk(input_ids=self.ids, use_cache=False).last_hidden_state

    def record(self):
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.kept = self.run()
            self.calls["graph"] = graph.replay
        except Exception as error:  # of whatever cannot be recorded
            print("no graph:", first_line(error), file=sys.stderr)
            torch.cuda.synchronize()

    def time(self, runs):
        found = {}
        for how, call in self.calls.items():
            call()
            found[how] = []
            for _ in range(runs):
                wait(self.device)
                start = time.perf_counter()
                call()
                wait(self.device)
                found[how].append(time.perf_counter() - start)
        best = min(found, key=lambda how: min(found[how]))
        return {"seconds": found[best], "how": best}


KINDS = {"hf": Tokens, "training": Training}


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def answer_of(function):
    try:
        return function()
    except Exception as error:  # compilers and libraries raise exceptions of any class
        sys.excepthook(type(error), error, error.__traceback__)
        return {"error": f"{type(error).__name__}: {first_line(error)}"}


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    (kind, _, name), device = sys.argv[1].partition(":"), sys.argv[2]
    ready = answer_of(lambda: {"worker": KINDS[kind](name, device)})
    for line in sys.stdin:
        request, found = json.loads(line), ready
        if "worker" in ready:
            worker = ready["worker"]
            found = answer_of(lambda: worker.time(request["runs"]))
            found |= {"version": version_of(worker.provider),
                      "config": "; ".join(filter(None, (worker.config, found.pop("how", ""))))}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
