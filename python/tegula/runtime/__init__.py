"""Models, tokenizers and trainers on the C runtime, without PyTorch: what tegula.Model and its like are."""

try:
    from .. import _runtime as _runtime
except ImportError as error:
    raise ImportError(
        "tegula.Model, Tokenizer and Trainer: expected the extension tegula._runtime, which is built where jansson, PCRE2 and "
        f"utf8proc are (Debian: pkg-config libjansson-dev libpcre2-dev libutf8proc-dev), got: {error}"
    ) from error
