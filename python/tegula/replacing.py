"""Puts replacements into classes and into single modules, and takes them out again.

A set of patches decides what stands where: `plan` says it, and both doors bring their side into that state, from
whichever state it was in. What stood there first is kept and comes back as the same object."""

import copy
import functools
import importlib
import sys
import types
import weakref
from dataclasses import dataclass
from typing import Any

ABSENT = object()
# (module, path) -> what is there now instead of the original.
_installed: dict[tuple[str, str], "Installed"] = {}
# What is done to single modules. The records live in the modules, and are copied with them.
_converted: "weakref.WeakSet[Converted]" = weakref.WeakSet()


@dataclass(frozen=True)
class Place:
    """An attribute that patches replace together: `make` with their `ops`."""

    module: str
    path: str
    make: Any
    ops: frozenset
    names: frozenset


@dataclass
class Installed:
    owner: Any
    attribute: str
    original: Any
    replacement: Any
    place: Place


def plan(patches):
    """{(module, path): Place} of a set of patches."""
    wanted = {}
    for patch in patches:
        for path, make in patch.attributes.items():
            place = wanted.get((patch.module, path), Place(patch.module, path, make, frozenset(), frozenset()))
            if place.make is not make:
                raise ValueError(f"{patch.name}: {patch.module}.{path}: expected one patch, got another that replaces it")
            ops, names = place.ops | {patch.op}, place.names | {patch.name}
            wanted[patch.module, path] = Place(patch.module, path, make, ops, names)
    return wanted


def locate(module, path):
    """(owner, attribute)."""
    owner = importlib.import_module(module)
    *parents, attribute = path.split(".")
    for name in (*parents, attribute):
        if not hasattr(owner, name):
            raise AttributeError(f"{module}.{path}: expected an attribute {name} of {owner.__name__}, got none")
        if name is not attribute:
            owner = getattr(owner, name)
    return owner, attribute


def original_of(module, path):
    """What stands there without Tegula; ABSENT where it is inherited."""
    if (module, path) in _installed:
        return _installed[module, path].original
    owner, attribute = locate(module, path)
    return vars(owner).get(attribute, ABSENT)


def build(place):
    modelling = importlib.import_module(place.module)
    stock = original_of(place.module, place.path)
    if stock is ABSENT:
        stock = getattr(*locate(place.module, place.path))
    replacement = place.make(stock, place.ops, modelling)
    if not hasattr(place.make, "as_given"):
        # Signature and keywords stay those of the original: the Trainer asks for them.
        replacement = functools.wraps(stock)(replacement)
        replacement.tegula_kind, replacement.tegula_parts = place.make.__name__, place.ops
    return replacement


def forget_compiled():
    """Compiled code does not notice that a class has changed."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


# ---- classes and functions ----


def install(patches):
    """Classes and functions are as `patches` say, all others as they were."""
    wanted = plan(patches)
    built = {
        target: build(place)
        for target, place in wanted.items()
        if target not in _installed or _installed[target].place != place
    }
    gone = [target for target in _installed if target not in wanted or target in built]
    for target in gone:
        now = _installed[target]
        if vars(now.owner).get(now.attribute) is not now.replacement:
            raise RuntimeError(f"{'.'.join(target)}: expected Tegula's replacement, got one that was put there later")
    for target in gone:
        put(_installed[target], _installed.pop(target).original)
    for target, replacement in built.items():
        owner, attribute = locate(*target)
        now = Installed(owner, attribute, vars(owner).get(attribute, ABSENT), replacement, wanted[target])
        _installed[target] = now
        put(now, replacement)
    if gone or built:
        forget_compiled()


def put(place, value):
    if value is ABSENT:
        delattr(place.owner, place.attribute)
    else:
        setattr(place.owner, place.attribute, value)


# ---- single modules ----


class Converted:
    """What stands in one module instead of its class's forward."""

    def __init__(self, module, names, attribute, original):
        self.module, self.names, self.attribute, self.original = weakref.ref(module), names, attribute, original
        _converted.add(self)

    def __deepcopy__(self, memo):
        module = memo.get(id(self.module()))
        if module is None:
            return None  # copied without its module
        original = self.original if self.original is ABSENT else copy.deepcopy(self.original, memo)
        return Converted(module, self.names, self.attribute, original)

    def __reduce__(self):
        return type(None), ()  # a pickled model comes back as transformers made it

    def undo(self):
        values = vars(self.module())
        if self.original is ABSENT:
            del values[self.attribute]
        else:
            values[self.attribute] = self.original
        del values["_tegula"]
        _converted.discard(self)


def record_of(module):
    return vars(module).get("_tegula")


def names_of(module):
    record = record_of(module)
    return record.names if record else frozenset()


def converted_modules():
    return [record.module() for record in list(_converted) if record.module() is not None]


def is_unpickled(module, forward):
    """A forward of its own that is the class's: so it comes out of a pickle of a converted module."""
    return getattr(forward, "__self__", None) is module and forward.__func__ is type(module).forward


def why_kept(module, cls):
    """Why a module of class `cls` cannot get a forward of its own, or None."""
    if type(module).forward is not cls.forward:
        return f"{type(module).__qualname__} has a forward of its own"
    own = vars(module).get("forward")
    if own is not None and "_old_forward" not in vars(module) and not is_unpickled(module, own):
        return "the module has a forward of its own, which captured the original (accelerate's mixed precision, kernelize)"
    return None


def place_for(module, places):
    """Where patches meet the module: (place, class), or None. Functions and whole classes are no one module's."""
    for place in places:
        cls, attribute = locate(place.module, place.path)
        if attribute == "forward" and isinstance(cls, type) and isinstance(module, cls):
            return place, cls
    return None


def convert(modules, patches_of):
    """Gives each module those of `patches_of(module)` that concern it; returns the names that any module took."""
    taken, plans, functions, changed = set(), {}, {}, False
    for module in modules:
        patches = tuple(patches_of(module))
        key = frozenset(patch.name for patch in patches)
        if key not in plans:
            plans[key] = plan(patches).values()
        found = place_for(module, plans[key])
        if found and found[0].names == names_of(module):
            taken |= found[0].names
            continue
        if record_of(module):
            record_of(module).undo()
            changed = True
        if found is None or why_kept(module, found[1]):
            continue
        place = found[0]
        if place not in functions:
            functions[place] = build(place)
        hooked = "_old_forward" in vars(module)
        attribute = "_old_forward" if hooked else "forward"
        record = Converted(module, place.names, attribute, vars(module)[attribute] if hooked else ABSENT)
        vars(module)[attribute] = types.MethodType(functions[place], module)
        vars(module)["_tegula"] = record
        taken |= place.names
        changed = True
    if changed:
        forget_compiled()
    return taken
