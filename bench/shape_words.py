"""Reads the shape strings of the ops: extents (16384x4096), keys with a number (s4096) and flags."""

import re


class NotServed(Exception):
    """A word of the shape that the peers' side does not know."""


class Words:
    def __init__(self, shape):
        self.shape, self.extents, self.left = shape, [], []
        for word in shape.split("_"):
            if re.fullmatch(r"\d+(x\d+)*", word) and not self.extents:
                self.extents = [int(n) for n in word.split("x")]
            else:
                self.left.append(word)

    def flag(self, word):
        present = word in self.left
        if present:
            self.left.remove(word)
        return present

    def number(self, key, fallback):
        for word in self.left:
            if re.fullmatch(key + r"\d+", word):
                self.left.remove(word)
                return int(word[len(key):])
        return fallback

    def done(self):
        """Every word must have been read: a peer that ignores one would do something else."""
        if self.left:
            raise NotServed(f"{self.shape}: {' '.join(self.left)}")
