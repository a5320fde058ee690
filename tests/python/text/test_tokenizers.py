"""Ids and texts of the runtime's tokenizers against Hugging Face's `tokenizers`."""

import itertools
import json
import pathlib
import random
import subprocess
import sys
import unicodedata

import pytest

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("hypothesis")
import tokenizer_graphs as graphs  # noqa: E402
import tokenizer_texts as texts_of  # noqa: E402
from hypothesis import given, settings, strategies as st  # noqa: E402
from model_library import ADD_SPECIAL, PLAIN, SKIP_SPECIAL, Tokenizer  # noqa: E402

nightly = pytest.mark.nightly
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
MARKS = [chr(c) for c in POINTS if unicodedata.combining(chr(c))]


class Both:
    """One tokenizer in both engines."""

    def __init__(self, directory, contents):
        graphs.write(directory, contents)
        self.ours = Tokenizer(directory)
        self.theirs = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))

    def check(self, texts, special=False):
        """The same ids, alone and with what the post-processor adds; the first difference is shown."""
        texts = list(texts)
        for text, encoding in zip(texts, self.theirs.encode_batch(texts, add_special_tokens=special)):
            ids = self.ours.encode(text, ADD_SPECIAL if special else 0)
            assert ids == encoding.ids, f"{ascii(text[:2000])}: {len(ids)} and {len(encoding.ids)} ids"

    def check_text(self, ids, skips=(False, True)):
        for skip in skips:
            ours = self.ours.decode(ids, SKIP_SPECIAL if skip else 0).decode(errors="replace")
            assert ours == self.theirs.decode(ids, skip_special_tokens=skip)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Tokenizers by name, each loaded once."""
    made = {}

    def load(name):
        if name not in made:
            made[name] = Both(tmp_path_factory.mktemp("tokenizer"), graphs.FAMILIES[name]())
        return made[name]

    yield load
    for both in made.values():
        both.ours.close()


# Qwen3.5's patterns are there with the small vocabulary.
FAMILIES = [pytest.param(name, marks=[nightly] if name == "qwen3.5" else []) for name in graphs.FAMILIES]


@pytest.fixture(params=FAMILIES)
def both(request, loaded):
    return loaded(request.param)


def lines(texts, size=2000):
    """The texts joined to longer ones, which both engines read faster."""
    texts = iter(texts)
    while some := "".join(itertools.islice(texts, size)):
        yield some


# ---- ids ----


def test_text_and_code(both):
    both.check([texts_of.english()[:60_000], texts_of.code()[:40_000]], special=True)


def test_mixed_scripts(both):
    both.check(texts_of.segments(1500, 1), special=True)
    for text in texts_of.segments(50, 2):
        assert both.ours.encode(text, PLAIN) == both.ours.encode(text, ranges=[(0, len(text.encode()))])


def edges():
    """Code points at which a class of some Unicode begins or ends."""
    kinds = [unicodedata.category(chr(c)) for c in POINTS]
    found = {i + d for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1] for d in (-1, 0)}
    for first, last in ((0x890, 0x8A0), (0x10D40, 0x10D8F), (0x1FA70, 0x1FB00), (0x1E5D0, 0x1E600), (0x2EBE0, 0x2EE60)):
        found.update(range(POINTS.index(first), POINTS.index(last)))
    return [chr(POINTS[i]) for i in sorted(found)]


def test_code_points_at_the_edges_of_classes(both):
    points = edges()
    for around in ("{}\n\n", "a{}b ", "1{0}'{0}x"):
        both.check(lines(around.format(c) for c in points))


@nightly
def test_every_code_point(both):
    for around in ("{}\n\n", "a{}b ", "1{0}'{0}x"):
        both.check(lines(around.format(chr(c)) for c in POINTS))


def test_pairs_of_marks(loaded):
    chance = random.Random(3)
    heads = ["a", "e", "\u00e9", "\u0915", "\u3042", "\u1100", "x", "\u1ec7"]
    pairs = (f"{chance.choice(heads)}{chance.choice(MARKS)}{chance.choice(MARKS)} " for _ in range(40_000))
    loaded("qwen3.5 pattern").check(lines(pairs))


@nightly
def test_all_pairs_of_marks(loaded):
    for head in ("a", "\u00e9"):
        loaded("qwen3").check(lines(f"{head}{a}{b} " for a in MARKS for b in MARKS))


@nightly
def test_twenty_megabytes(both):
    text = "".join(itertools.chain([texts_of.english() * 5, texts_of.code()], texts_of.segments(140_000, 4)))
    assert len(text.encode()) > 11_000_000
    both.check(text[i : i + 500_000] for i in range(0, len(text), 500_000))


@pytest.mark.parametrize("name", ["gpt2", "qwen2 pattern"])
@pytest.mark.parametrize("character", [" ", "a", "\u4f60"])
def test_long_runs(loaded, name, character):
    loaded(name).check([character * 500_000])


def test_every_byte(both):
    text = bytes(range(256)).decode("latin-1")
    both.check([text, text[::-1]])


# ---- texts ----


def test_random_ids_decode(both):
    chance, size = random.Random(5), both.theirs.get_vocab_size()
    for _ in range(400):
        both.check_text([chance.randrange(size + 50) for _ in range(chance.randint(1, 20))])


def test_random_bytes_round_trip(both):
    chance = random.Random(6)
    texts = [chance.randbytes(400).decode(errors="replace") for _ in range(50)]
    both.check(texts)
    for text in texts:
        ids = both.ours.encode(text)
        both.check_text(ids)
        if both.theirs.normalizer is None:
            assert both.ours.decode(ids).decode() == text


def test_pieces_are_what_decoding_writes(both):
    size = both.theirs.get_vocab_size()
    for index in [*range(0, size, 997), size - 1, size, size + 100]:
        data, kind = both.ours.piece(index)
        assert data == both.ours.decode([index])
        assert (kind == 0) == (both.theirs.id_to_token(index) is None)


# ---- added tokens ----

SMALL = [("t", "h"), ("th", "e"), (graphs.ALPHABET[32], "the"), ("a", "b"), ("e", "\u00cc")]
letters = st.text(st.sampled_from("ab<>e \u0301\u00e9\u3000\nthx\u2126"), min_size=1, max_size=4)


def small_graph(tokens, nfc):
    vocab = {c: byte for byte, c in graphs.ALPHABET.items()}
    for a, b in SMALL:
        vocab[a + b] = len(vocab)
    added, number = [], len(vocab)
    for content, flags in tokens.items():
        known = vocab.get(content)
        added.append(graphs.added_token(number if known is None else known, content, **flags))
        number += known is None
    return graphs.graph(vocab, [list(pair) for pair in SMALL], graphs.byte_level(), added, nfc=nfc)


flag_sets = st.fixed_dictionaries({name: st.booleans() for name in ("lstrip", "rstrip", "normalized", "special")})


@settings(max_examples=250, deadline=None)
@given(st.dictionaries(letters, flag_sets, max_size=5), st.booleans(), st.lists(letters, max_size=12))
def test_added_tokens_of_every_kind(tmp_path_factory, tokens, nfc, parts):
    both = Both(tmp_path_factory.getbasetemp(), small_graph(tokens, nfc))
    text = "".join(parts)
    try:
        both.check([text, "".join(tokens) + text, " ".join(tokens)])
    except BaseException as error:  # a token within the white space that another takes: they have no ids for it
        if type(error).__name__ != "PanicException":
            raise
        assert "bad split" in str(error)
    # Theirs no longer knows a special token as one when normalising changed its text.
    strange = [t for t, flags in tokens.items() if flags["special"] and unicodedata.normalize("NFC", t) != t]
    both.check_text(both.ours.encode(text), (False,) if strange else (False, True))
    both.ours.close()


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(letters, flag_sets, max_size=4), st.booleans(), letters, letters, letters)
def test_marked_text_holds_no_added_tokens(tmp_path_factory, tokens, nfc, before, marked, behind):
    """Where all is marked, or nothing, the ids are those of the flags; in between no text is lost."""
    directory = graphs.write(tmp_path_factory.getbasetemp(), small_graph(tokens, nfc))
    ours = Tokenizer(directory)
    first, last, size = (len(s.encode()) for s in (before, before + marked, before + marked + behind))
    text = before + marked + behind
    assert ours.encode(text, ranges=[(0, size)]) == ours.encode(text, PLAIN)
    assert ours.encode(text, ranges=[(first, first)]) == ours.encode(text)
    ids = ours.encode(text, ranges=[(first, last)])
    strips = any(flags["lstrip"] or flags["rstrip"] for flags in tokens.values())
    if not nfc and not strips and "".join(tokens).isascii():
        assert ours.decode(ids).decode() == text
    ours.close()


def test_an_empty_range_within_an_edit_marks_nothing(tmp_path):
    """NFC takes "<" and the accent behind it as one edit; the tokens stay, whichever place is marked."""
    flags = dict(lstrip=False, rstrip=False, normalized=True, special=False)
    ours = Tokenizer(graphs.write(tmp_path, small_graph({"<": flags, "\u0301": flags}, True)))
    text = "<\u0301<"
    for place in (0, 1, 3, 4):
        assert ours.encode(text, ranges=[(place, place)]) == ours.encode(text)
    ours.close()


# ---- files ----


@pytest.mark.parametrize("name, kind", [("gpt2", "GPT2Tokenizer"), ("qwen2", "Qwen2Tokenizer")])
def test_vocabulary_and_merges_without_tokenizer_json(tmp_path, name, kind):
    transformers = pytest.importorskip("transformers")
    for file in ("vocab.json", "merges.txt"):
        (tmp_path / file).write_bytes(graphs.data_file(name, file).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class=kind, eos_token="<|endoftext|>")))
    theirs = getattr(transformers, kind).from_pretrained(tmp_path)
    ours = Tokenizer(tmp_path)
    for text in [texts_of.english()[:20_000], *texts_of.segments(300, 8)]:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.special("eos_token") == theirs.eos_token_id
    ours.save(tmp_path / ".")
    ours.close()


def test_other_normalisers_are_refused(tmp_path):
    contents = graphs.small(graphs.byte_level())
    contents["normalizer"] = dict(type="NFKC")
    with pytest.raises(RuntimeError, match=r"tokenizer.json: normalizer: expected NFC or none"):
        Tokenizer(graphs.write(tmp_path, contents))


@pytest.mark.parametrize("name, vector", [("gpt2", "gpt-2"), ("qwen3", "qwen2"), ("llama3", "llama-bpe")])
def test_vectors_of_llama_cpp(loaded, name, vector):
    """Texts and ids that llama.cpp ships with its sources, in models/ggml-vocab-<name>.gguf.inp and .out."""
    texts = graphs.data_file("llama.cpp", f"ggml-vocab-{vector}.gguf.inp").read_text(encoding="utf-8")
    ids = graphs.data_file("llama.cpp", f"ggml-vocab-{vector}.gguf.out").read_text().splitlines()
    ours = loaded(name).ours
    for text, row in zip(texts.split("\n__ggml_vocab_test__\n"), ids):
        assert ours.encode(text, PLAIN) == [int(i) for i in row.split()], ascii(text)


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="unicodedata is not that of Unicode 14")
def test_unicode_tables_are_those_of_the_library():
    script = pathlib.Path(graphs.ROOT, "scripts", "unicode_tables.py")
    ran = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
