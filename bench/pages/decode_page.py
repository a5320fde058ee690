"""Of docs/performance.md: decoding and prefill on a GPU (bench/decode_speed.py), and what README.md says of
them."""

from pages.bars import number, ours_of, peers_of
from pages.markdown_table import table

NAMES = {"gpt2": "GPT-2 124M", "qwen3-0.6b": "Qwen3-0.6B", "qwen3-8b": "Qwen3-8B"}
ONE = "b1_tg128@d512"
WHAT = {ONE: "one sequence", "b32_tg128@d512": "32 sequences", "b1_pp2048": "a prompt of 2048"}
BY = {"hf": "transformers, static cache and torch.compile", "training_forward": "our forward pass in training"}

ABOUT = """\
bf16, random weights. A sequence has 512 tokens in the cache, 128 more are timed; rates are those of all \
sequences together. Peers are processes of their own, timed before and after ours. The forward pass in \
training is that of the patched model over as many tokens, without its head, since a prompt has one row \
of logits. vLLM and llama.cpp were not run. `plan` is how a pass over one token runs: \
[one kernel or a graph](runtime.md#one-kernel-a-token)."""


def rate(row):
    return f"{number(row, 'tokens_per_s'):.0f}"


def section(cases, card):
    found = [(case, rows) for case, rows in cases.items() if case[0] == "engine" and case[4] in WHAT]
    if not found:
        return
    yield f"## Decoding on a GPU{card}"
    yield ""
    yield ABOUT
    yield ""
    lines = []
    for case, rows in sorted(found, key=lambda item: (list(NAMES).index(item[0][1]),
                                                      list(WHAT).index(item[0][4]))):
        mine = ours_of(rows)
        beside = ", ".join(f"{BY[row['impl']]} {rate(row)} "
                           f"({number(mine, 'tokens_per_s') / number(row, 'tokens_per_s'):.2f})"
                           for row in peers_of(rows))
        lines.append((NAMES[case[1]], WHAT[case[4]], rate(mine), f"{number(mine, 'ms'):.3f}", mine["config"],
                      beside))
    yield from table(("model", "what", "tokens/s", "ms", "plan", "beside, tokens/s (ours over it)"), lines)
    seen = sorted({(row["device"], row["driver"], row["commit"], row["date"][:10], row["version"])
                   for _, rows in found for row in rows if row["impl"] == "hf"})
    yield from table(("device", "driver", "commit", "date", "peers"),
                     [(a, b, f"`{c}`", d, e) for a, b, c, d, e in seen])


def decoded(cases):
    """(model, rows) of one sequence, where the peer was measured, too."""
    found = [(name, cases.get(("engine", model, "decode", "bf16", ONE), [])) for model, name in NAMES.items()]
    return [(name, rows) for name, rows in found if rows and peers_of(rows)]


def words(texts):
    return ", ".join(texts[:-1]) + " and " * (len(texts) > 1) + texts[-1]


def sentence(cases):
    """For README.md; "" where nothing was measured."""
    found = decoded(cases)
    if not found:
        return ""
    pairs = [(number(ours_of(rows), "tokens_per_s"), number(peers_of(rows)[0], "tokens_per_s"))
             for _, rows in found]
    rates = words([f"{mine:.0f} tokens/s ({name})" for (name, _), (mine, _) in zip(found, pairs)])
    ratios = words([f"{mine / peer:.2f}" for mine, peer in pairs])
    return (f"With 512 tokens in the cache it decodes one sequence in bf16 at {rates}: {ratios} times transformers with a "
            "static cache and torch.compile.")
