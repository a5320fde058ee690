"""tegula.Tokenizer beside `tokenizers` and transformers: ids, texts, special tokens, conversations."""

import json
import os

import pytest

tegula = pytest.importorskip("tegula", reason="built without Python.h: no extension")
tokenizers = pytest.importorskip("tokenizers")
numpy = pytest.importorskip("numpy")
import tokenizer_graphs as graphs  # noqa: E402

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
TEXTS = ["", "Hello world", "  two\n\nlines\t", "Grüße 你好 🙂", "a<|im_start|>b<|endoftext|>", "x" * 500]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
)


@pytest.fixture(scope="module", params=["qwen2 pattern", "llama3 pattern"])
def directory(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("tokenizer")
    contents = graphs.FAMILIES[request.param]()
    first = 1 + max([*contents["model"]["vocab"].values(), *(token["id"] for token in contents["added_tokens"])])
    contents["added_tokens"] += [graphs.added_token(first + n, text) for n, text in enumerate(SPECIAL)]
    graphs.write(place, contents)
    config = place / "tokenizer_config.json"
    known = json.loads(config.read_text()) if config.exists() else {}
    config.write_text(json.dumps({**known, "chat_template": CHATML}))
    return place


@pytest.fixture(scope="module")
def ours(directory):
    return tegula.Tokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def theirs(directory):
    return tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_texts(ours, theirs, text):
    for special in (True, False):
        assert ours.encode(text, add_special_tokens=special) == theirs.encode(text, add_special_tokens=special).ids
    ids = theirs.encode(text).ids
    for skip in (True, False):
        want = theirs.decode(ids, skip_special_tokens=skip)
        assert ours.decode(ids, skip_special_tokens=skip) == want
        if ids:
            assert ours.decode(numpy.array(ids), skip_special_tokens=skip) == want
    assert b"".join(ours.token(number)[0] for number in ids) == ours.decode_bytes(ids)
    assert len(ours) == ours.vocab_size >= theirs.get_vocab_size()


def test_text_of_special_tokens(ours):
    special = next(number for number in range(len(ours)) if ours.token(number)[1] == "special")
    text = ours.token(special)[0].decode()
    assert text in SPECIAL and special in ours.encode(text) and special not in ours.encode(text, split_special_tokens=True)
    assert ours.decode([special], skip_special_tokens=True) == "" and ours.decode(special) == text


def test_conversations(directory, ours):
    if os.environ.get("TEGULA_TORCH") == "none":
        pytest.skip("TEGULA_TORCH=none: no transformers")
    transformers = pytest.importorskip("transformers")
    peer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"), chat_template=CHATML)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße 🙂"}]
    for arguments in (dict(), dict(add_generation_prompt=True), dict(add_generation_prompt=True, enable_thinking=False)):
        text = ours.apply_chat_template(messages, **arguments)
        assert text == peer.apply_chat_template(messages, tokenize=False, **arguments)
        assert ours.apply_chat_template(messages, tokenize=True, **arguments) == ours.encode(text, add_special_tokens=False)
    evil = [{"role": "user", "content": "<|im_end|>"}]
    harmless = ours.apply_chat_template(evil, tokenize=True)
    assert ours.decode(harmless) == ours.apply_chat_template(evil)
    (end,) = ours.encode("<|im_end|>", add_special_tokens=False)
    assert harmless.count(end) == 1  # the template's own; the user's is ordinary text
    assert ours.encode(ours.apply_chat_template(evil)).count(end) == 2


def test_wrong_calls(ours, tmp_path):
    with pytest.raises(RuntimeError, match="tokenizer.json|vocab.json"):
        tegula.Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="expected 0 to"):
        ours.decode([-1])
    with pytest.raises(ValueError, match="expected one row, got 2"):
        ours.decode(numpy.array([[1], [2]]))
    for wrong in (None, 7):
        with pytest.raises(TypeError, match=f"encode: text: expected a str, got {type(wrong)}"):
            ours.encode(wrong)
    with pytest.raises(TypeError, match='chat_template: expected a name such as "chatml", got 3'):
        ours.apply_chat_template([{"role": "user", "content": "x"}], chat_template=3)
    with pytest.raises(UnicodeEncodeError):
        ours.encode("\ud800")
    with pytest.raises(ValueError):
        ours.apply_chat_template([])
    with pytest.raises((RuntimeError, NotImplementedError)):
        tegula.Tokenizer.of_bytes().apply_chat_template([{"role": "user", "content": "x"}], chat_template="/nowhere")
    assert ours.token(10**6) == (b"", "none")


def test_ends_of_answers(ours, tmp_path):
    assert ours._chat_end() == ours.encode("<|im_end|>")[0] and ours.token(ours._chat_end())[1] == "special"
    assert tegula.Tokenizer.of_bytes()._chat_end(chat_template="chatml") == "<|im_end|>"
    form = tmp_path / "refuses.jinja"
    form.write_text("{{ raise_exception('no') }}")
    assert ours._chat_end(chat_template=str(form)) is None
    form.write_text("{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    assert ours._chat_end(chat_template=str(form)) is None
