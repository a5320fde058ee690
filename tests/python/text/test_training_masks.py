"""Which tokens of conversations `tegula train` counts: those of transformers' return_assistant_tokens_mask, by a template's
marks and, where it has none, by rendering the first messages.

Templates of public models are looked for as in test_chat_models.py; others are written here.
"""

import json
import os
import re
import subprocess

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("needs transformers", allow_module_level=True)
transformers = pytest.importorskip("transformers")
import datetime  # noqa: E402

from chat_peer import DATE, FixedDate  # noqa: E402
from conversations import CONVERSATIONS  # noqa: E402
from model_library import BUILD  # noqa: E402
from test_chat_models import FOLDER, MARKED, usable  # noqa: E402
from tokenizer_graphs import QWEN2, QWEN3_ADDED, QWEN3_SPECIAL, added_token, qwen3, small, splits  # noqa: E402
from transformers.utils import chat_template_utils  # noqa: E402

CLI = BUILD / "src" / "cli" / "tegula"

# Manners of writing a turn: a header of special tokens with a name in between; of two of them; and thoughts that are
# dropped once a user asks again.
CHATML = """{%- for m in messages %}
{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\n' }}{%- generation %}{{- m.content }}
{%- for c in m.tool_calls or [] %}{{- '<tool_call>' + c.function.name + '</tool_call>' }}{%- endfor %}
{{- '<|im_end|>' }}{%- endgeneration %}{{- '\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\n' + (m.content if m.content is string else '') + '<|im_end|>\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
HEADERS = """{%- for m in messages %}{{- '<|box_start|>' + m.role + '<|box_end|>\n\n' }}
{%- if m.role == 'assistant' %}{%- generation %}{{- m.content|trim + '<|endoftext|>' }}{%- endgeneration %}
{%- else %}{{- (m.content if m.content is string else '') + '<|endoftext|>' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|box_start|>assistant<|box_end|>\n\n' }}{%- endif %}"""
THOUGHTS = """{%- set ns = namespace(last=0) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\n' }}{%- generation %}
{%- if m.reasoning_content and loop.index0 > ns.last %}{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif %}
{{- m.content + '<|im_end|>' }}{%- endgeneration %}{{- '\n' }}
{%- else %}{{- '<|im_start|>' + m.role + '\n' + (m.content if m.content is string else '') + '<|im_end|>\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
# A header of one token, behind which the prompt opens thoughts; answers lose theirs.
OPENED = """{%- for m in messages %}
{%- if m.role == 'assistant' %}{{- '<|box_start|>' }}{%- generation %}{{- m.content.split('</think>')[-1] + '<|endoftext|>' }}
{%- endgeneration %}
{%- else %}{{- '<|box_end|>' + (m.content if m.content is string else '') }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|box_start|><think>\n' }}{%- endif %}"""
# The last answer ends with another token than those before.
LAST = """{%- for m in messages %}{{- '<|vision_start|>' + m.role }}
{%- if m.role == 'assistant' %}{%- generation %}{{- '<|vision_pad|>' + m.content }}
{{- '<|quad_start|>' if loop.last else '<|quad_end|>' }}{%- endgeneration %}
{%- else %}{{- '<|vision_pad|>' + (m.content if m.content is string else '') + '<|quad_end|>' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|vision_start|>assistant' }}{%- endif %}"""
WRITTEN = {"opened": OPENED, "last": LAST, "chatml": CHATML, "headers": HEADERS, "thoughts": THOUGHTS}
MORE = {
    "spaces at borders": [("user", " a "), ("assistant", "  b \n"), ("user", "c\n"), ("assistant", "\n\nd")],
    "one letter": [("user", "a"), ("assistant", "b")],
    "not normalised": [("user", "e\u0301"), ("assistant", "u\u0308ber e\u0301\u0301"), ("user", "x"), ("assistant", "\u0301")],
    "many turns": [(role, f"{role} {turn} 🙂 日本") for turn in range(8) for role in ("user", "assistant")],
}


@pytest.fixture(scope="module", params=["qwen3", "qwen2 pattern"])
def directory(request, tmp_path_factory):
    """A directory with a tokenizer; transformers reads the same."""
    if request.param == "qwen3":
        made = qwen3()
    else:
        made = small(splits(QWEN2), nfc=True)
        first = max(made["model"]["vocab"].values()) + 1
        tokens = [(content, True) for content in QWEN3_SPECIAL] + [(content, False) for content in QWEN3_ADDED]
        made["added_tokens"] = [added_token(first + i, content, special) for i, (content, special) in enumerate(tokens)]
    path = tmp_path_factory.mktemp("tokenizer")
    (path / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    chat_template_utils.datetime = FixedDate
    yield path, transformers.PreTrainedTokenizerFast.from_pretrained(path)
    chat_template_utils.datetime = datetime.datetime


def conversations():
    for messages, tools, arguments in CONVERSATIONS.values():
        if usable(messages):
            yield messages, tools, arguments
    for turns in MORE.values():
        yield [{"role": role, "content": content} for role, content in turns], None, {}


def wanted(tokenizer, template):
    """Lines of JSONL, and the ids and mask of each, of what transformers renders and counts."""
    lines, expected = [], []
    for messages, tools, arguments in conversations():
        try:
            out = tokenizer.apply_chat_template(
                messages, tools=tools, chat_template=template, return_dict=True, return_assistant_tokens_mask=True, **arguments
            )  # fmt: skip
        except Exception:
            continue
        if any(out["assistant_masks"][1:]):
            lines.append({"messages": messages, "chat_template_kwargs": arguments, **({"tools": tools} if tools else {})})
            expected.append((out["input_ids"], out["assistant_masks"]))
    return lines, expected


def shown(path, template, lines, tmp_path, *more):
    """What `tegula train` has of the lines, one after another."""
    (tmp_path / "template.jinja").write_text(template, encoding="utf-8")
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    out = subprocess.run(
        [CLI, "train", "--model", path, "--train-file", tmp_path / "lines.jsonl", "--template", tmp_path / "template.jinja",
         "--date", DATE, "--show-data", "1000", "--no-cache", "--trust-content", *more],
        capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert out.returncode == 0, out.stderr
    documents = [json.loads(line) for line in out.stdout.splitlines()]
    return [(d["ids"], d["counted"]) for d in documents]


def unmarked(template):
    """The same text: what trims white space stays."""
    return re.sub(r"(\{%-?\s*)generation\b", r"\1if true", re.sub(r"(\{%-?\s*)endgeneration\b", r"\1endif", template))


@pytest.mark.parametrize("name", [*WRITTEN, *MARKED])
def test_marks(directory, name, tmp_path):
    path, tokenizer = directory
    template = WRITTEN.get(name) or read(name)
    lines, expected = wanted(tokenizer, template)
    assert len(lines) >= 10
    assert shown(path, template, lines, tmp_path) == expected


@pytest.mark.parametrize("name", WRITTEN)
def test_prefixes_agree_with_marks(directory, name, tmp_path):
    path, tokenizer = directory
    lines, expected = wanted(tokenizer, WRITTEN[name])
    keep = [i for i, line in enumerate(lines) if line["messages"][0]["role"] != "assistant"]
    assert len(keep) >= 10
    got = shown(path, unmarked(WRITTEN[name]), [lines[i] for i in keep], tmp_path)
    assert got == [expected[i] for i in keep]


@pytest.mark.parametrize("name", MARKED)
def test_prefixes_never_take_what_users_wrote(directory, name, tmp_path):
    """Also where the tokenizer lacks the template's special tokens: a conversation is refused, or read."""
    path, tokenizer = directory
    template = unmarked(read(name))
    (tmp_path / "template.jinja").write_text(template, encoding="utf-8")
    secret = "what only the user said, at some length"
    for messages, tools, arguments in list(conversations())[::6]:
        messages = [{**m, "content": secret} if m["role"] == "user" else m for m in messages]
        (tmp_path / "line.jsonl").write_text(json.dumps({"messages": messages}) + "\n", encoding="utf-8")
        out = subprocess.run(
            [CLI, "train", "--model", path, "--train-file", tmp_path / "line.jsonl", "--template", tmp_path / "template.jinja",
             "--show-data", "1", "--no-cache"], capture_output=True, encoding="utf-8",
        )  # fmt: skip
        assert out.returncode == 0 or "line 1: " in out.stderr
        assert not any(secret in target for line in out.stdout.splitlines() for target in json.loads(line)["targets"])


def read(name):
    path = FOLDER / f"{name}.jinja"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path.read_text(encoding="utf-8")
