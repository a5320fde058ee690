"""transformers' rendering of chat templates, at a fixed date."""

import datetime

DATE = "2026-11-27T09:30:05"


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(DATE)


def expected(template, messages, tools=None, documents=None, arguments=None, prompt=False):
    """The text of transformers, and the code points that {% generation %} marks; or its exception."""
    from transformers.utils import chat_template_utils as utils

    utils.datetime = FixedDate
    normalize = getattr(utils, "_normalize_chat_messages", list)
    texts, marks = utils.render_jinja_template(
        conversations=[normalize(messages)], tools=tools, documents=documents, chat_template=template,
        add_generation_prompt=prompt, return_assistant_tokens_mask=True, **(arguments or {}),
    )  # fmt: skip
    return texts[0], marks[0]
