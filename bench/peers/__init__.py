"""The same problem for Tegula and for its peers, per op: what to pass, whom to compare with.

A builder (words of the shape, backward, dtype) returns a Problem: `fields` for tegula_call.Call and
the peers, each a function that returns its results under the names of our slots. Peers are called
from their installed packages; one whose package is missing is left out. Every *_peers.py here
defines BUILDERS and, for docs/accuracy.md, the shapes ACCURACY.
"""

import importlib
import pathlib

BUILDERS, ACCURACY = {}, {}
for path in sorted(pathlib.Path(__file__).parent.glob("*_peers.py")):
    module = importlib.import_module("peers." + path.stem)
    BUILDERS.update(module.BUILDERS)
    ACCURACY.update(module.ACCURACY)
