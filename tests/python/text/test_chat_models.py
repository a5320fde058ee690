"""Templates of public models against transformers, byte for byte.

They are their models' and not in this tree: $TEGULA_TEST_DATA/chat_templates (default ../shared/data/chat_templates) holds
them. The sources of llama-cpp-python have them in models/templates, trl (in chat_templates) has some with marks of the
assistant's text.
"""

import datetime
import logging
import os
import pathlib

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("needs transformers", allow_module_level=True)
pytest.importorskip("transformers")
from chat_peer import DATE, FixedDate  # noqa: E402
from chat_template import Refused, Template  # noqa: E402
from conversations import CONVERSATIONS, SEARCH, WEATHER  # noqa: E402
from transformers.utils import chat_template_utils  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = pathlib.Path(os.environ.get("TEGULA_TEST_DATA", ROOT.parent / "shared" / "data")) / "chat_templates"
IN_SCOPE = """
Qwen-Qwen2.5-7B-Instruct Qwen-QwQ-32B Qwen-Qwen3-0.6B Qwen3-Coder Qwen3.5-4B meta-llama-Llama-3.1-8B-Instruct
meta-llama-Llama-3.2-3B-Instruct meta-llama-Llama-3.3-70B-Instruct NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use
NousResearch-Hermes-3-Llama-3.1-8B-tool_use deepseek-ai-DeepSeek-R1-Distill-Llama-8B deepseek-ai-DeepSeek-R1-Distill-Qwen-32B
HuggingFaceTB-SmolLM3-3B openai-gpt-oss-120b
""".split()
MARKED = """
qwen2_5_training qwen3_training qwen3_instruct_2507_training qwen3_5_think_training qwen3_5_nothink_training qwen3_6_training
qwen3_8_training llama3_training deepseek_r1_distill_training gptoss_training
""".split()
OTHERS = sorted({path.stem for path in FOLDER.glob("*.jinja")} - set(IN_SCOPE) - set(MARKED))
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
assert len(CONVERSATIONS) >= 20


@pytest.fixture(scope="module")
def tokenizer():
    """One token per byte: texts and offsets are what counts here."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    engine = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    engine.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    chat_template_utils.datetime = FixedDate
    yield transformers.PreTrainedTokenizerFast(tokenizer_object=engine)
    chat_template_utils.datetime = datetime.datetime


def read(name):
    path = FOLDER / f"{name}.jinja"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path.read_text(encoding="utf-8")


def usable(messages):
    """Older versions of transformers hand over nulls, and thoughts under one name alone."""
    plain = all(value is not None for m in messages for value in m.values()) and not any("reasoning_content" in m for m in messages)
    return plain or hasattr(chat_template_utils, "_alias_reasoning_fields")


def variants(name):
    """A conversation as it is, and with tools."""
    messages, tools, arguments = CONVERSATIONS[name]
    if usable(messages):
        arguments = {**SPECIAL, **arguments}
        yield messages, tools, arguments
        yield messages, [WEATHER, SEARCH], arguments


def check(tokenizer, text, template, messages, tools, arguments, prompt):
    """Whether both rendered; False: both refused."""
    try:
        wanted = tokenizer.apply_chat_template(
            messages, tools=tools, chat_template=text, add_generation_prompt=prompt, tokenize=False, **arguments
        )  # fmt: skip
    except Exception as error:
        with pytest.raises(Refused):
            template.render(messages, tools=tools, arguments=arguments, prompt=prompt)
        assert not isinstance(error, AssertionError)
        return False
    got = template.render(messages, tools=tools, arguments=arguments, prompt=prompt, date=DATE)
    assert got.text == wanted
    return True


@pytest.mark.parametrize("model", IN_SCOPE + MARKED + OTHERS)
def test_text(tokenizer, model):
    text = read(model)
    template = Template(text)
    rendered = {
        name
        for name in CONVERSATIONS
        for prompt in (False, True)
        for variant in variants(name)
        if check(tokenizer, text, template, *variant, prompt)
    }
    if model in IN_SCOPE + MARKED:
        assert len(rendered) >= 20, sorted(CONVERSATIONS.keys() - rendered)


@pytest.mark.parametrize("model", MARKED + [name for name in IN_SCOPE + OTHERS if (FOLDER / f"{name}.jinja").exists()])
def test_assistant_mask(tokenizer, model):
    """Token by token, and each token is a byte. A template without marks has an empty mask."""
    text = read(model)
    template = Template(text)
    masked = 0
    for name in CONVERSATIONS:
        for messages, tools, arguments in variants(name):
            try:
                wanted = tokenizer.apply_chat_template(
                    messages, tools=tools, chat_template=text, return_dict=True, return_assistant_tokens_mask=True, **arguments
                )["assistant_masks"]  # fmt: skip
            except Exception:
                continue
            got = template.render(messages, tools=tools, arguments=arguments)
            assert [int(any(a <= i < b for a, b in got.generated)) for i in range(len(got.bytes))] == wanted, name
            masked += any(wanted)
    assert template.mentions("generation") == (masked > 0)


def moved(value, by):
    """The text with its characters elsewhere in Unicode; keys and names stay."""
    if isinstance(value, list):
        return [moved(item, by) for item in value]
    if isinstance(value, dict):
        return {key: moved(item, by) if key not in NAMES else item for key, item in value.items()}
    return "".join(chr(ord(c) + by) for c in value)


MOVE = 0xF0000  # to a plane for private use
NAMES = ("role", "type", "name", "tool_call_id")


@pytest.mark.parametrize("model", IN_SCOPE + MARKED + OTHERS)
def test_untrusted_ranges(tokenizer, model):
    """Where users and tools wrote characters of a plane that nobody else writes in, those are the ranges."""
    text = read(model)
    template = Template(text)
    compared = 0
    for name in ["several turns", "system and turns", "parts", "plain tool", "two users"]:
        messages, _, arguments = CONVERSATIONS[name]
        others = [moved(m, MOVE) if m["role"] in ("user", "tool") else m for m in messages]
        try:
            wanted = tokenizer.apply_chat_template(
                others, tools=[WEATHER], chat_template=text, tokenize=False, **SPECIAL, **arguments
            )  # fmt: skip
        except Exception:
            continue
        got = template.render(messages, tools=[WEATHER], arguments={**SPECIAL, **arguments})
        if got.text != "".join(chr(ord(c) - MOVE) if ord(c) >= MOVE else c for c in wanted):
            continue  # the template looks into the text
        marks = [ord(c) >= MOVE for c in wanted for _ in (chr(ord(c) - MOVE) if ord(c) >= MOVE else c).encode()]
        for begin, end in got.untrusted:
            named = got.bytes[begin:end] in (b"get_weather", b"call00001")
            assert named or all(marks[begin:end]), (name, got.bytes[begin:end])
            marks[begin:end] = [False] * (end - begin)
        assert not any(marks), name
        compared += len(got.untrusted) > 0
    assert compared >= 2 or model in OTHERS


def test_all_in_scope_are_there():
    """Says once which templates are missing, where some are there."""
    missing = [name for name in IN_SCOPE + MARKED if not (FOLDER / f"{name}.jinja").exists()]
    if missing:
        pytest.skip(f"not in {FOLDER}: {', '.join(missing)}")
