"""Chat templates of libtegula_model.so through ctypes."""

import ctypes as c
import json

from chat_peer import DATE
from model_library import Error, lib

STATUS = {0: "OK", 1: "BAD_ARGUMENT", 4: "UNSUPPORTED", 5: "NO_MEMORY", 7: "IO", 8: "BAD_FILE"}


class Range(c.Structure):
    _fields_ = [("begin", c.c_size_t), ("end", c.c_size_t)]


class Text(c.Structure):
    _fields_ = [
        ("text", c.c_void_p), ("size", c.c_size_t), ("untrusted", c.POINTER(Range)), ("num_untrusted", c.c_size_t),
        ("generated", c.POINTER(Range)), ("num_generated", c.c_size_t),
    ]  # fmt: skip


class Args(c.Structure):
    _fields_ = [
        ("messages", c.c_char_p), ("tools", c.c_char_p), ("documents", c.c_char_p), ("arguments", c.c_char_p),
        ("name", c.c_char_p), ("date", c.c_char_p), ("add_generation_prompt", c.c_bool),
    ]  # fmt: skip


lib.tg_chat_template_text.restype = c.c_char_p
lib.tg_chat_template_mentions.restype = c.c_bool


class Refused(Exception):
    def __init__(self, error):
        super().__init__(f"{STATUS[error.status]}: {error.text.decode(errors='replace')}")
        self.status = STATUS[error.status]
        self.text = error.text.decode()


def encode(value):
    return value if value is None or isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()


class Rendered:
    """The text in bytes, and the byte ranges beside it."""

    def __init__(self, out):
        self.bytes = c.string_at(out.text, out.size)
        self.text = self.bytes.decode()
        self.untrusted = [(r.begin, r.end) for r in out.untrusted[: out.num_untrusted]]
        self.generated = [(r.begin, r.end) for r in out.generated[: out.num_generated]]

    def parts(self, ranges):
        return [self.bytes[begin:end].decode() for begin, end in ranges]


class Template:
    def __init__(self, text=None, directory=None, source=None):
        self.handle, error = c.c_void_p(), Error()
        if text is not None:
            text = text if isinstance(text, bytes) else text.encode()
            status = lib.tg_chat_template_create(b"t", text, c.c_size_t(len(text)), c.byref(self.handle), c.byref(error))
        else:
            names = [None if name is None else str(name).encode() for name in (directory, source)]
            status = lib.tg_chat_template_load(*names, c.byref(self.handle), c.byref(error))
        if status:
            raise Refused(error)

    def render(self, messages, tools=None, documents=None, arguments=None, name=None, prompt=False, date=DATE):
        args = Args(
            encode(messages), encode(tools), encode(documents), encode(arguments), name and name.encode(),
            date and date.encode(), prompt,
        )  # fmt: skip
        out, error = Text(), Error()
        if lib.tg_chat_template_render(self.handle, c.byref(args), c.byref(out), c.byref(error)):
            raise Refused(error)
        rendered = Rendered(out)
        lib.tg_chat_text_release(c.byref(out))
        return rendered

    def text(self, name="default"):
        text = lib.tg_chat_template_text(self.handle, name.encode())
        return text and text.decode()

    def mentions(self, name):
        return lib.tg_chat_template_mentions(self.handle, name.encode())

    def __del__(self):
        lib.tg_chat_template_destroy(self.handle)
