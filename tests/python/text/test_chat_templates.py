"""Chat templates in our own words: every construct against transformers' Jinja, and what comes beside the text."""

import json
import os
import re

import pytest

if os.environ.get("TEGULA_TORCH") == "none":
    pytest.skip("needs transformers", allow_module_level=True)
pytest.importorskip("transformers")
from chat_constructs import CASES, MESSAGES, VARIABLES  # noqa: E402
from chat_peer import expected  # noqa: E402
from chat_template import Refused, Template  # noqa: E402


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("prompt", [False, True])
def test_constructs(name, prompt):
    wanted, marks = expected(CASES[name], MESSAGES, arguments=VARIABLES, prompt=prompt)
    got = Template(CASES[name]).render(MESSAGES, arguments=VARIABLES, prompt=prompt)
    assert got.text == wanted
    assert got.parts(got.generated) == [wanted[a:b] for a, b in marks if b > a]


# ---- errors ----

# Where a template fails, in transformers too: line, column, and words of the message.
ERRORS = {
    "a\n  {{ u.x }}": (2, 7, 'BAD_ARGUMENT: t: line 2, column 7: expected something with attributes, got "u", which is undefined'),
    "{{ messages[9].role }}": (1, 15, 'got "9" of a list, which is undefined'),
    "{{ messages[0].x.y }}": (1, 17, 'got "x" of a dict, which is undefined'),
    "{{ 1 + 'a' }}": (1, 6, 'expected values that "+" can join, got int and str'),
    "{{ 'a' + 1 }}": (1, 8, "got str and int"),
    "{{ u + 1 }}": (1, 6, 'got "u", which is undefined'),
    "{{ 1 < 'a' }}": (1, 6, "values that have an order, got int and str"),
    "{{ none < 1 }}": (1, 9, "got None and int"),
    "{{ 'x' in none }}": (1, 8, "something to go through, got None"),
    "{{ 1 in 'abc' }}": (1, 6, 'a str left of "in" and a str, got int 1'),
    "{% for x in 5 %}{% endfor %}": (1, 13, "something to go through, got int 5"),
    "{% for a, b in [[1]] %}{% endfor %}": (1, 8, "as many values as names, got fewer"),
    "{{ 1 / 0 }}": (1, 6, "a divisor other than 0"),
    "{{ raise_exception('no ' ~ 1) }}": (1, 4, 'expected messages that the template accepts, got "no 1"'),
    "{{ 'a'() }}": (1, 4, "something to call, got str"),
    "{{ u() }}": (1, 4, "something to call"),
    "{{ none|length }}": (1, 9, "something with a length, got None"),
    "{{ {}|tojson(1, 2, 3, 4, 5) }}": (1, 7, "at most 4 arguments of tojson, got 5"),
    "{{ 'a'|replace('a') }}": (1, 8, "at least 2 arguments of replace"),
    "{{ u|tojson }}": (1, 6, "a value that JSON has"),
    "{{ {[]: 1} }}": (1, 5, "a key that can be one"),
    "{% set u.x = 1 %}": (1, 8, "a namespace, whose attribute is set"),
    "{% set ns = namespace(_a=1) %}": (1, 13, "does not begin with an underscore"),
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}": (1, 34, "at most 1 arguments of the macro, got 2"),
    "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}": (1, 34, 'names of the macro\'s parameters, got "b"'),
    "{{ [].append(1) }}": (1, 6, 'got "append" of a list, which is undefined'),
    "{{ range(100001) }}": (1, 4, "a range of at most 100000"),
    "{{ 'a'|nosuch }}": (1, 8, 'UNSUPPORTED: t: line 1, column 8: expected a filter that is known, got "nosuch"'),
    "{{ 'a' is nosuch }}": (1, 8, 'expected a test that is known, got "nosuch"'),
    "{{ [1, 'a']|sort }}": (1, 13, "values that have an order"),
    "{{ messages[1:'x'] }}": (1, 15, 'an int or none in a slice, got str "x"'),
    "{{ messages[::0] }}": (1, 13, "a step other than 0"),
    # while reading
    "{{ 1 +": (1, 1, "BAD_FILE: t: line 1, column 1: expected an end of this expression, got none"),
    "é{% if %}": (1, 8, 'expected an expression, got "%}"'),
    "{% if 1 %}\na": (2, 2, 'expected "{% endif %}"' if False else "{% endif %}"),
    "{% endif %}": (1, 4, 'a statement, got "endif"'),
    "{% nosuch %}": (1, 4, 'a statement, got "nosuch"'),
    "{{ 'a }}": (1, 4, "an end of this text"),
    "{# a": (1, 1, "an end of this comment"),
    "{% raw %}a": (1, 1, "an {% endraw %}"),
    "{{ 1 ! 2 }}": (1, 6, "an expression, got !"),
    "{{ (1 }}": (1, 7, "another bracket or none, got }"),
    "{{ a b }}": (1, 6, 'expected "}}", got "b"'),
    "{{ f(a=1, 2) }}": (1, 11, "arguments by position before others"),
    "{% set 1 = 2 %}": (1, 8, "a name to assign to"),
    "{% macro f(a=1, b) %}{% endmacro %}": (1, 18, "a default, as the parameter before has one"),
    "{% break %}": (1, 4, "a loop around break and continue"),
    "{% for x in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}": (1, 38, "a loop around break"),
    "{{ '\\ud800' }}": (1, 4, "digits of a Unicode character"),
}  # fmt: skip


@pytest.mark.parametrize("template", ERRORS)
def test_errors_of_both(template):
    line, column, words = ERRORS[template]
    with pytest.raises(Exception) as theirs:
        text, _ = expected(template, MESSAGES)
        text.encode()  # a lone surrogate is an error only now
    assert not isinstance(theirs.value, AssertionError)
    with pytest.raises(Refused) as ours:
        Template(template).render(MESSAGES)
    assert f"t: line {line}, column {column}: expected " in str(ours.value) and words in str(ours.value), str(ours.value)


# What transformers understands and this library does not, by name.
UNSUPPORTED = {
    "{% include 'x' %}": "include", "{% extends 'x' %}": "extends", "{% block x %}{% endblock %}": "block",
    "{% import 'x' as y %}": "import", "{% from 'x' import y %}": "from", "{% autoescape true %}{% endautoescape %}": "autoescape",
    "{% print 1 %}": "print", "{% for x in [1] recursive %}{% endfor %}": "recursive", "{{ 'a'|center }}": "center",
    "{{ 9223372036854775807 + 1 }}": "64 bits", "{{ 9223372036854775808 }}": "64 bits", "{{ 'a'.center(3) }}": "center",
    "{{ messages|map('upper') }}": "something to print", "{{ '\\N{BULLET}' }}": "by number", "{{ 1.0.hex() }}": "hex",
}  # fmt: skip


@pytest.mark.parametrize("template", UNSUPPORTED)
def test_what_is_not_understood_is_named(template):
    with pytest.raises(Refused) as refused:
        Template(template).render(MESSAGES)
    assert refused.value.status == "UNSUPPORTED" and UNSUPPORTED[template] in str(refused.value)


# ---- bounds ----

ENDLESS = {
    "loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "calls itself in a call": "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}",
    "prints": "{% for a in range(9999) %}{{ 'x' * 100000 }}{% endfor %}",
    "doubles a text": "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "doubles a list": "{% set n = namespace(s=[1]) %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "doubles what is compared": "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}",
    "doubles what is printed": "{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
    "doubles what is written": "{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = {'k': n.a, 'l': n.a} %}{% endfor %}{{ n.a|tojson }}",
    "nests values": "{% set n = namespace(a=[1]) %}{% for i in range(2000) %}{% set n.a = [n.a] %}{% endfor %}{{ n.a }}",
    "pads": "{% for i in range(99999) %}{{ '%1000s' % 1 }}{% endfor %}",
    "indents": "{{ [1]|tojson(indent=9999999999) }}",
    "repeats": "{{ [0] * 9223372036854775807 }}",
    "searches": "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{{ 'b' in s }}{% endfor %}",
    "strips": "{% set s = ' ' * 1000000 %}{% for i in range(99999) %}{{ s.strip() }}{% endfor %}",
    "sorts": "{% set s = range(99999)|list %}{% for i in range(99999) %}{% if s|sort %}{% endif %}{% endfor %}",
    "brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "lists": "{{ " + "[" * 900 + "]" * 900 + " }}",
    "blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "a chain": "{{ 1" + " + 1" * 5000 + " }}",
    "attributes": "{{ x" + ".a" * 5000 + " }}",
    "nots": "{{ " + "not " * 5000 + "1 }}",
    "conditions": "{{ " + "1 if 0 else " * 5000 + "1 }}",
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_templates_that_never_end_are_ended(name):
    with pytest.raises(Refused) as refused:
        Template(ENDLESS[name]).render(MESSAGES)
    assert re.search("UNSUPPORTED.*expected (at most [0-9]* (levels|bytes)|an end after at most)|BAD_FILE.*fewer open brackets", str(refused.value))


def test_deep_json_is_refused():
    for depth in (1500, 2100):
        content = b"[" * depth + b"]" * depth
        with pytest.raises(Refused, match="levels of nesting, got more" if depth < 2048 else "BAD_ARGUMENT: messages: byte 2[0-9]*: expected JSON"):
            Template("{{ messages }}").render(b'[{"role": "user", "content": ' + content + b"}]")


def test_large_templates_and_other_bytes_are_refused():
    with pytest.raises(Refused, match="BAD_FILE.*at most 1048576 bytes"):
        Template("x" * (1 << 20) + "x")
    with pytest.raises(Refused, match="BAD_FILE: t: expected UTF-8, got 0xff at byte 1"):
        Template(b"a\xff")


# ---- messages ----


@pytest.mark.parametrize(
    "messages, words",
    [
        ([], "a list of at least one, got an empty list"),
        ({"role": "user"}, "a list of at least one, got an object"),
        (["x"], "objects, got another value at index 0"),
    ],
)
def test_messages_that_are_none(messages, words):
    with pytest.raises(Refused) as refused:
        Template("x").render(messages)
    assert refused.value.status == "BAD_ARGUMENT" and words in str(refused.value)


def test_other_arguments_that_are_refused():
    template = Template("{{ x }}")
    for arguments, words in [
        ({"arguments": ["x"]}, "arguments that are an object"), ({"arguments": {"tools": 1}}, 'other names, got "tools"'),
        ({"tools": {"a": 1}}, "tools that are a list"), ({"tools": [1]}, "tools that are objects"),
        ({"documents": ["x"]}, "documents that are objects"), ({"name": "rag"}, 'one of the templates, got "rag"'),
        ({"date": "2026-02-30"}, "a date such as"), ({"date": "2026-1-1"}, "a date such as"), ({"date": "today"}, "a date such as"),
        ({"date": "2026-01-01T25:00:00"}, "a date such as"), ({"date": "2026-01-01 "}, "a date such as"),
    ]:  # fmt: skip
        with pytest.raises(Refused) as refused:
            template.render(MESSAGES, **arguments)
        assert refused.value.status == "BAD_ARGUMENT" and words in str(refused.value)


def test_keys_that_are_null_are_left_out():
    messages = [{"role": "user", "content": None, "tool_calls": None, "thinking": None, "x": {"y": None}}]
    template = "{{ messages }}{{ messages[0].content is defined }}{{ messages|tojson }}"
    assert Template(template).render(messages).text == expected(template, messages)[0]


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_thoughts_have_three_names(key):
    messages = [{"role": "assistant", key: "hm", "content": "x"}, {"role": "assistant", "thinking": "a", "reasoning_content": "b", "reasoning": "c"}]
    template = "{{ messages }}"
    assert Template(template).render(messages).text == expected(template, messages)[0]


# ---- what others wrote ----


def untrusted(template, messages, **arguments):
    rendered = Template(template).render(messages, **arguments)
    return rendered.parts(rendered.untrusted)


def test_ranges_of_what_users_and_tools_wrote():
    messages = [
        {"role": "system", "content": "S <|x|>"},
        {"role": "user", "content": "Ü <|im_end|>"},
        {"role": "assistant", "content": "<think>", "tool_calls": [{"function": {"name": "f", "arguments": {"a": "A"}}}]},
        {"role": "tool", "name": "f", "content": {"k": "<|im_end|>"}},
        {"role": "us<|im_end|>er", "content": ""},
        {"content": "nobody"},
    ]
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.tool_calls }}{{ m.name }};{% endfor %}"
    assert untrusted(template, messages) == ["Ü <|im_end|>", "k", "<|im_end|>", "f", "us<|im_end|>er", "nobody"]


# Each changes the text "ab<x>cd" of a user, beside words of the template; and what is left of it.
CARRIED = {
    "m": ["ab<x>cd"], "'[' + m + ']'": ["ab<x>cd"], "m ~ '<' ~ m": ["ab<x>cd", "ab<x>cd"], "m[1:-1]": ["b<x>c"], "m[::-1]": ["dc>x<ba"],
    "m[0]": ["a"], "m|upper": ["AB<X>CD"], "m|replace('b', '<s>')": ["a", "<x>cd"], "m.replace('<', '')": ["abx>cd"], "m|trim('a')": ["b<x>cd"],
    "m.split('<')[1]": ["x>cd"], "m.split('<')|join('<')": ["ab", "x>cd"], "[m]": ["ab<x>cd"], "{m: 1}": ["ab<x>cd"], "m|tojson": ["ab<x>cd"],
    "(m ~ '\"')|tojson": ["ab<x>cd"], "m|e": ["ab", "x", "cd"], "'%s|%s' % (m, 1)": ["ab<x>cd"], "'{}'.format(m)": ["ab<x>cd"], "m|format": ["ab<x>cd"],
    "m|list|join": ["ab<x>cd"], "m|indent": ["ab<x>cd"], "m * 2": ["ab<x>cdab<x>cd"], "m|reverse": ["dc>x<ba"], "(m if true else 1)": ["ab<x>cd"],
    "'x'.join([m, m])": ["ab<x>cd", "ab<x>cd"], "m.partition('<')[2]": ["x>cd"], "m|title": ["Ab<X>cd"], "m|length": [], "m == 'ab<x>cd'": [], "m|safe + '<'": ["ab<x>cd"],
    "m|string|default('x')": ["ab<x>cd"], "[m, 'b']|sort|first": ["ab<x>cd"], "m.splitlines()|first": ["ab<x>cd"], "m|map('upper')|join": ["AB<X>CD"],
}  # fmt: skip


@pytest.mark.parametrize("expression", CARRIED)
def test_marks_are_carried_along(expression):
    template = "<s>{% set m = messages[0].content %}{{ " + expression + " }}</s>"
    messages = [{"role": "user", "content": "ab<x>cd"}]
    assert untrusted(template, messages) == CARRIED[expression]
    for statement in ["{% set x %}[{{ m }}]{% endset %}{{ x }}", "{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f(m) }}", "{% filter trim %} {{ m }}{% endfilter %}"]:
        assert untrusted("{% set m = messages[0].content %}" + statement, messages) == ["ab<x>cd"]


def test_documents_are_others_and_tools_are_the_operators():
    template = "{{ tools }}{{ documents }}{{ x }}"
    assert untrusted(template, MESSAGES, tools=[{"a": "T"}], documents=[{"text": "D"}], arguments={"x": "X"}) == ["text", "D"]


# ---- the assistant's text ----

MASKED = """{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<end>{% endgeneration %}
{% else %}{{ m.content }}{% endif %}{% endfor %}"""


def byte_tokenizer():
    """One token per byte, whose offsets are those of characters."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    engine = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    engine.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=engine)


@pytest.mark.parametrize(
    "template",
    [
        MASKED,
        "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}|{% endfor %}",
        "{% generation %}{% generation %}a{% endgeneration %}b{% endgeneration %}c",
        "ab{% macro f() %}x{% generation %}é{% endgeneration %}{% endmacro %}{{ f() }}{{ f() }}cd",
        "{% generation %}{% endgeneration %}x",
        "no mark",
    ],
)
def test_masks_are_those_of_transformers(template):
    messages = [{"role": "user", "content": "é?"}, {"role": "assistant", "content": "日本 ok"}, {"role": "user", "content": "x"}, {"role": "assistant", "content": ""}]
    wanted = byte_tokenizer().apply_chat_template(
        messages, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )["assistant_masks"]  # fmt: skip
    rendered = Template(template).render(messages)
    assert [int(any(a <= i < b for a, b in rendered.generated)) for i in range(len(rendered.bytes))] == wanted
    assert Template(template).mentions("generation") == ("generation" in template)


# ---- where templates come from ----


def write(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_jinja", ".jinja").replace("_json", ".json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_sources_in_their_order(tmp_path):
    config = {"chat_template": "config {{ bos_token }}", "bos_token": "<s>", "model_max_length": 10**30}
    write(tmp_path, tokenizer_config_json=config)
    assert Template(directory=tmp_path).render(MESSAGES).text == "config <s>"
    write(tmp_path, chat_template_jinja="file {{ bos_token }}")
    assert Template(directory=tmp_path).render(MESSAGES).text == "file <s>"
    write(tmp_path, additional_chat_templates__tool_use_jinja="tools", additional_chat_templates__rag_jinja="rag")
    template = Template(directory=tmp_path)
    assert template.render(MESSAGES).text == "file <s>" and template.render(MESSAGES, tools=[]).text == "tools"
    assert template.render(MESSAGES, name="rag").text == "rag" and template.text("rag") == "rag" and template.text("x") is None
    write(tmp_path, own_jinja="own {{ bos_token }}")
    assert Template(directory=tmp_path, source=tmp_path / "own.jinja").render(MESSAGES).text == "own <s>"
    assert Template(directory=tmp_path, source="chatml").render(MESSAGES[:1]).text == "<|im_start|>system\nBe brief.<|im_end|>\n"


def test_a_list_of_templates(tmp_path):
    listed = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t{{ tools }}"}]
    write(tmp_path, tokenizer_config_json={"chat_template": listed})
    template = Template(directory=tmp_path)
    assert template.render(MESSAGES).text == "d" and template.render(MESSAGES, tools=[{"a": 1}]).text == "t[{'a': 1}]"
    for wrong in [{"default": "d"}, [{"name": "d"}], 7]:
        write(tmp_path, tokenizer_config_json={"chat_template": wrong})
        with pytest.raises(Refused, match="BAD_FILE.*chat_template: expected"):
            Template(directory=tmp_path)


def test_special_tokens(tmp_path):
    """As transformers collects them: strings or objects, of the file's own names too."""
    transformers = pytest.importorskip("transformers")
    show = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ image_token }}|{{ unk_token is defined }}|{{ add_bos_token is defined }}"
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": show, "bos_token": "<s>", "pad_token": None, "add_bos_token": True,
        "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False},
        "extra_special_tokens": {"image_token": "<img>"},
    }  # fmt: skip
    byte_tokenizer().save_pretrained(tmp_path)
    write(tmp_path, tokenizer_config_json=config)
    wanted = transformers.AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(MESSAGES, tokenize=False)
    assert Template(directory=tmp_path).render(MESSAGES).text == wanted == "<s>|</s>||<img>|False|False"
    write(tmp_path, special_tokens_map_json={"pad_token": "<pad>", "eos_token": {"content": "<e>"}})
    wanted = transformers.AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(MESSAGES, tokenize=False)
    assert Template(directory=tmp_path).render(MESSAGES).text == wanted == "<s>|<e>|<pad>|<img>|False|False"
    assert Template(directory=tmp_path).render(MESSAGES, arguments={"bos_token": "B"}).text.startswith("B|")


def test_directories_without_a_template(tmp_path):
    with pytest.raises(Refused, match="UNSUPPORTED.*expected a chat template in .* got none"):
        Template(directory=tmp_path)
    write(tmp_path, tokenizer_config_json={"bos_token": "<s>", "chat_template": None})
    with pytest.raises(Refused, match="UNSUPPORTED"):
        Template(directory=tmp_path)
    with pytest.raises(Refused, match="IO: .*nosuch.jinja"):
        Template(directory=tmp_path, source=tmp_path / "nosuch.jinja")
    write(tmp_path, tokenizer_config_json="{")
    with pytest.raises(Refused, match="BAD_FILE.*tokenizer_config.json: byte 1"):
        Template(directory=tmp_path)


def test_a_broken_template_is_reported_where_it_is_used(tmp_path):
    write(tmp_path, chat_template_jinja="ok", additional_chat_templates__rag_jinja="{% if %}")
    template = Template(directory=tmp_path)
    assert template.render(MESSAGES).text == "ok"
    with pytest.raises(Refused, match="BAD_FILE.*rag.jinja: line 1, column 7"):
        template.render(MESSAGES, name="rag")
    write(tmp_path, chat_template_jinja="{% if %}")
    with pytest.raises(Refused, match="BAD_FILE.*chat_template.jinja: line 1, column 7"):
        Template(directory=tmp_path)


def test_mentions():
    template = Template("{{ 1 if enable_thinking }}{% generation %}{% endgeneration %}{{ loop }}")
    assert template.mentions("enable_thinking") and template.mentions("generation")
    assert not template.mentions("reasoning_effort") and not template.mentions("messages") and not template.mentions("loop")


# ---- the library's own ----

OWN = {
    "chatml": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhich <b>colour</b> has the sky?<|im_end|>\n"
    "<|im_start|>assistant\nBlue 🙂<|im_end|>\n<|im_start|>user\nAnd at night?<|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    "Which <b>colour</b> has the sky?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nBlue 🙂<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nAnd at night?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
}


@pytest.mark.parametrize("name", OWN)
def test_own_templates(name):
    template = Template(source=name)
    got = template.render(MESSAGES, prompt=True)
    assert got.text == OWN[name] == expected(template.text(), MESSAGES, prompt=True)[0]
    assert got.parts(got.generated) == ["Blue 🙂<|im_end|>" if name == "chatml" else "Blue 🙂<|eot_id|>"]
    assert got.parts(got.untrusted) == ["Which <b>colour</b> has the sky?", "And at night?"]
    assert template.render(MESSAGES).text == OWN[name][: OWN[name].rindex("<|im_start|>" if name == "chatml" else "<|start_header_id|>")]
    odd = [{"role": "user", "content": ""}, {"role": "assistant", "tool_calls": []}, {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "x"}]}]
    assert template.render(odd).text == expected(template.text(), odd)[0]


def test_the_date_of_today():
    import datetime

    assert Template("{{ strftime_now('%Y-%m-%d') }}").render(MESSAGES, date=None).text in {
        str(datetime.date.today()), str(datetime.date.today() - datetime.timedelta(days=1)),
    }  # fmt: skip
    assert Template("{{ strftime_now('%H:%M %a') }}").render(MESSAGES, date="2024-02-29").text == "00:00 Thu"
