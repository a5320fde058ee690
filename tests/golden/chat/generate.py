#!/usr/bin/env python3
"""Writes what transformers makes of chat templates: the golden texts of tests/chat/test_chat_template.c.

  constructs.json      a few lines for each construct (tests/python/text/chat_constructs.py), one conversation
  conversations.json   the templates beside this script, which are Tegula's own, with the conversations of
                       tests/python/text/conversations.py; a text that is null: the template refuses the conversation

JSON stands in strings, so that numbers and order reach the renderer as they reached transformers. Ranges count bytes.
Provenance: transformers 5.24.0, jinja2 3.1.6. Run: python tests/golden/chat/generate.py
"""

import json
import pathlib
import sys

from jinja2.exceptions import TemplateError

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python" / "text"))
import chat_constructs as constructs  # noqa: E402
from chat_peer import DATE, expected  # noqa: E402
from conversations import CONVERSATIONS  # noqa: E402


def dump(value):
    return None if value is None else json.dumps(value, ensure_ascii=False)


def golden(template, messages, tools, arguments, prompt):
    """Text and ranges as a case has them."""
    try:
        text, marks = expected(template, messages, tools=tools, arguments=arguments, prompt=prompt)
    except (TemplateError, TypeError):
        return {"text": None}
    ranges = [[len(text[:end].encode()) for end in mark] for mark in marks if mark[1] > mark[0]]
    return {"text": text, "generated": ranges}


def write(name, contents):
    text = json.dumps(dict(date=DATE, **contents), ensure_ascii=False, indent=1)
    (HERE / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    cases = [
        {"name": name, "template": template, **golden(template, constructs.MESSAGES, None, constructs.VARIABLES, False)}
        for name, template in constructs.CASES.items()
    ]
    write("constructs.json", {"messages": dump(constructs.MESSAGES), "arguments": dump(constructs.VARIABLES), "cases": cases})

    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.jinja"))}
    cases = []
    for number, (name, (messages, tools, arguments)) in enumerate(CONVERSATIONS.items()):
        for file, template in texts.items():
            prompt = (number + len(cases)) % 2 == 0
            arguments = {"bos_token": "<|begin|>", **arguments}
            cases.append({"template": file, "conversation": name, "prompt": prompt, **golden(template, messages, tools, arguments, prompt)})
    conversations = {name: {"messages": dump(m), "tools": dump(t), "arguments": dump({"bos_token": "<|begin|>", **a})} for name, (m, t, a) in CONVERSATIONS.items()}
    write("conversations.json", {"conversations": conversations, "cases": cases})
