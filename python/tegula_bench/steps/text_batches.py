"""Text to train on without a tokenizer: its bytes are the ids. The default is prose that comes with every Python, the
topics of help()."""

import pathlib


def text_bytes(path=None):
    if path:
        return pathlib.Path(path).read_bytes()
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics)).encode()


def batches(text, count, rows, seq):
    """`count` tensors of [rows, seq] ids from consecutive pieces of text. A short text repeats, at another offset in the
    row each time."""
    import torch

    need = count * rows * seq
    if not text:
        raise ValueError("text: expected at least a byte, got none")
    whole = text * (need // len(text) + 1)
    return list(torch.frombuffer(bytearray(whole[:need]), dtype=torch.uint8).long().view(count, rows, seq))
