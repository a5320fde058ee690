"""tokenizer.json files of the families that the runtime serves, made of vocabularies that are on this machine.

Those of GPT-2 and Qwen2 (vocab.json, merges.txt) are looked for in $TEGULA_TEST_DATA, else in ../shared/data. Others come
out of packages, where they are installed: `litellm` has o200k (GPT-OSS) and DeepSeek V3's, `llama-models` has Llama 3's.
Every family's patterns are also there over a small vocabulary that is trained in the run.
"""

import base64
import functools
import importlib.util
import json
import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("TEGULA_TEST_DATA", ROOT.parent / "shared" / "data"))
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = WORDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN35 = WORDS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES
LLAMA3 = WORDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{WORDS}?|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{WORDS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)
QWEN3_SPECIAL = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
    <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>""".split()
QWEN3_ADDED = """<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|>
    <|file_sep|> <tool_response> </tool_response> <think> </think>""".split()


def alphabet():
    """The character that stands for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return {byte: chr(byte if byte in printable else next(others)) for byte in range(256)}


ALPHABET = alphabet()


def spell(data):
    return "".join(ALPHABET[byte] for byte in data)


def added_token(index, content, special=True, **flags):
    token = dict(id=index, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False)
    return {**token, "special": special, **flags}


def byte_level(**more):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, **more}


def splits(*patterns):
    steps = [dict(type="Split", pattern={"Regex": p}, behavior="Isolated", invert=False) for p in patterns]
    return dict(type="Sequence", pretokenizers=[*steps, byte_level(use_regex=False)])


def graph(vocab, merges, pre_tokenizer, added=(), nfc=False, ignore_merges=False, post_processor=None):
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=list(added),
        normalizer=dict(type="NFC") if nfc else None, pre_tokenizer=pre_tokenizer, post_processor=post_processor,
        decoder=byte_level(use_regex=True),
        model=dict(
            type="BPE", dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False,
            byte_fallback=False, ignore_merges=ignore_merges, vocab=vocab, merges=merges,
        ),
    )  # fmt: skip


def begin_with(content, index):
    """The post-processor that puts a token before each text, as Llama 3 has it."""
    single = [dict(SpecialToken=dict(id=content, type_id=0)), dict(Sequence=dict(id="A", type_id=0))]
    template = dict(
        type="TemplateProcessing", single=single, pair=[*single, dict(Sequence=dict(id="B", type_id=1))],
        special_tokens={content: dict(id=content, ids=[index], tokens=[content])},
    )  # fmt: skip
    return dict(type="Sequence", processors=[byte_level(use_regex=True), template])


# ---- vocabularies ----


def data_file(*parts):
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def package_file(package, inside):
    found = importlib.util.find_spec(package)
    path = found and pathlib.Path(found.submodule_search_locations[0]) / inside
    if not path or not path.exists():
        pytest.skip(f"{package} is not installed")
    return path


@functools.cache
def paired(name):
    """Vocabulary and merges of $TEGULA_TEST_DATA/<name>."""
    vocab = json.loads(data_file(name, "vocab.json").read_text(encoding="utf-8"))
    lines = data_file(name, "merges.txt").read_text(encoding="utf-8").split("\n")
    return vocab, [line for line in lines if line and not line.startswith("#version")]


def ranked(path):
    """Vocabulary and merges of a file of tiktoken's: a pair of tokens merges with the rank of what it makes."""
    rows = (line.split() for line in path.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in rows}
    merges = []
    for token, rank in ranks.items():
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        pairs = [(a, b) for a, b in cuts if a in ranks and b in ranks]
        merges += [(rank, ranks[a], ranks[b], a, b) for a, b in pairs]
    pairs = [[spell(a), spell(b)] for *_, a, b in sorted(merges, key=lambda m: m[:3])]
    return {spell(token): rank for token, rank in ranks.items()}, pairs


# ---- families ----


def gpt2():
    vocab, merges = paired("gpt2")
    return graph(vocab, merges, byte_level(), [added_token(50256, "<|endoftext|>")])


def qwen3(pattern=QWEN2):
    vocab, merges = paired("qwen2")
    tokens = [(content, True) for content in QWEN3_SPECIAL] + [(content, False) for content in QWEN3_ADDED]
    added = [added_token(len(vocab) + i, content, special) for i, (content, special) in enumerate(tokens)]
    return graph(vocab, merges, splits(pattern), added, nfc=True)


def qwen35():
    return qwen3(QWEN35)


@functools.cache
def trained():
    """A vocabulary of 3000 tokens, out of the project's own pages."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    engine = Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=sorted(ALPHABET.values()), show_progress=False)
    engine.train_from_iterator((p.read_text(encoding="utf-8") for p in sorted(ROOT.glob("docs/*.md"))), trainer)
    model = json.loads(engine.to_str())["model"]
    return model["vocab"], model["merges"]


def small(pre_tokenizer, **more):
    """A pre-tokenizer over the small vocabulary."""
    return graph(*trained(), pre_tokenizer, **more)


def llama3():
    vocab, merges = ranked(package_file("llama_models", "llama3/tokenizer.model"))
    contents = ["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{i}|>" for i in range(254))]
    added = [added_token(len(vocab) + i, content) for i, content in enumerate(contents)]
    post = begin_with(contents[0], len(vocab))
    return graph(vocab, merges, splits(LLAMA3), added, ignore_merges=True, post_processor=post)


RANKS = "litellm_core_utils/tokenizers/"


def o200k():
    vocab, merges = ranked(package_file("litellm", RANKS + "fb374d419588a4632f3f557e76b4b70aebbca790"))
    reserved = (f"<|reserved_{i}|>" for i in range(200000, 200018))
    contents = ["<|startoftext|>", "<|endoftext|>", *reserved, "<|endofprompt|>"]
    added = [added_token(len(vocab) + i, content) for i, content in enumerate(contents)]
    return graph(vocab, merges, splits(O200K), added)


def deepseek():
    return json.loads(package_file("litellm", RANKS + "deepseek_tokenizer.json").read_text(encoding="utf-8"))


FAMILIES = {
    "gpt2": gpt2,
    "qwen3": qwen3,
    "gpt2 pattern": lambda: small(byte_level()),
    "qwen2 pattern": lambda: small(splits(QWEN2), nfc=True),
    "llama3 pattern": lambda: small(splits(LLAMA3), ignore_merges=True),
    "o200k pattern": lambda: small(splits(O200K)),
    "qwen3.5 pattern": lambda: small(splits(QWEN35), nfc=True),
    "deepseek patterns": lambda: small(splits(*DEEPSEEK)),
    "llama3": llama3,
    "o200k": o200k,
    "deepseek": deepseek,
    "qwen3.5": qwen35,
}


def write(directory, contents):
    (directory / "tokenizer.json").write_text(json.dumps(contents, ensure_ascii=False), encoding="utf-8")
    return directory
