"""Installs replacements in classes and in single modules, and removes them.

A set of patches determines what each place holds: `plan` computes it, and `install` (classes) and `convert` (modules)
bring about that state from any other. Originals are kept and restored as the same objects."""

import copy
import functools
import importlib
import sys
import types
import weakref
from dataclasses import dataclass
from typing import Any

from .. import sharding

ABSENT = object()
# (module, path) -> the replacement there.
_installed: dict[tuple[str, str], "Installed"] = {}
# Records of converted modules. Each belongs to its module and is copied with it.
_converted: "weakref.WeakSet[Converted]" = weakref.WeakSet()


@dataclass(frozen=True)
class Place:
    """An attribute that one or more patches replace, by `make` with their `ops`."""

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
    """{(module, path): Place} of a set of patches. Of several replacements of an attribute that of the highest priority
    is planned."""
    wanted, first = {}, {}
    for patch in sorted(patches, key=lambda patch: -patch.priority):
        for path, make in patch.attributes.items():
            target = patch.module, path
            leader = first.setdefault(target, patch)
            if leader.attributes[path] is not make:
                if leader.priority > patch.priority:
                    continue
                raise ValueError(
                    f"{patch.name}: {'.'.join(target)}: expected a patch with a priority of its own, got {patch.priority} "
                    f"as {leader.name} has, which replaces it too; unregister_patch removes one of yours"
                )
            place = wanted.get(target, Place(*target, make, frozenset(), frozenset()))
            wanted[target] = Place(*target, make, place.ops | {patch.op}, place.names | {patch.name})
    return wanted


def names_of_places():
    """The names of the patches that hold a place in a class or file."""
    return frozenset().union(*(installed.place.names for installed in _installed.values()))


def locate(module, path):
    """(owner, attribute)."""
    owner = importlib.import_module(module)
    *parents, attribute = path.split(".")
    for name in parents:
        owner = getattr(owner, name)
    return owner, attribute


def original_of(module, path):
    """The attribute without Tegula; ABSENT if it is inherited."""
    if (module, path) in _installed:
        return _installed[module, path].original
    owner, attribute = locate(module, path)
    return vars(owner).get(attribute, ABSENT)


def build(place):
    modelling = importlib.import_module(place.module)
    stock = original_of(place.module, place.path)
    if stock is ABSENT:
        stock = getattr(*locate(place.module, place.path), None)
    if stock is None and not hasattr(place.make, "adds"):
        raise AttributeError(f"{', '.join(place.names)}: expected {place.module} to have {place.path}, got none")
    replacement = place.make(stock, place.ops, modelling)
    if stock is not None and not hasattr(place.make, "as_given"):
        # The Trainer inspects the signature, so it stays the original's.
        replacement = functools.wraps(stock)(replacement)
        replacement.tegula_kind, replacement.tegula_parts = place.make.__name__, place.ops
        replacement.tegula_itself = replacement  # which a wrapper of others copies, too, and so is told from it
    return replacement


def forget_compiled():
    """Resets Dynamo: compiled code does not notice that a class has changed."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


# ---- classes and functions ----


def install(patches):
    """Replaces what `patches` name in classes and functions, and restores everything else."""
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
    if isinstance(place.owner, type):
        for cls in place.owner.__subclasses__():
            sharding.inherit_forward(cls)


# ---- single modules ----


class Added:
    """A method of one module that its class lacks. It pickles as `instead`."""

    def __init__(self, function, module, instead):
        self.function, self.module, self.instead = function, module, instead

    def __call__(self, *arguments, **keywords):
        return self.function(self.module, *arguments, **keywords)

    def __deepcopy__(self, memo):
        return Added(self.function, memo.get(id(self.module), self.module), self.instead)

    def __reduce__(self):
        return itself, (self.instead,)


def itself(value):
    return value


class Converted:
    """The replacements in one module. `names` are the patches in place, `wanted` also those that a patch of a higher
    priority keeps away. `originals` are the module's own attributes before, `found` the replaced places."""

    def __init__(self, module, names, wanted, originals, found):
        self.module, self.names, self.wanted = weakref.ref(module), names, wanted
        self.originals, self.found = originals, found
        _converted.add(self)

    def __deepcopy__(self, memo):
        module = memo.get(id(self.module()))
        if module is None:
            return None  # copied without its module
        originals = {
            attribute: original if original is ABSENT else copy.deepcopy(original, memo)
            for attribute, original in self.originals.items()
        }
        return Converted(module, self.names, self.wanted, originals, self.found)

    def __reduce__(self):
        return type(None), ()  # a pickled model is restored without patches

    def undo(self):
        values = vars(self.module())
        for attribute, original in self.originals.items():
            if original is ABSENT:
                del values[attribute]
            else:
                values[attribute] = original
        del values["_tegula"]
        _converted.discard(self)


def record_of(module):
    return vars(module).get("_tegula")


def names_of(module):
    record = record_of(module)
    return record.names if record else frozenset()


def wanted_of(module):
    record = record_of(module)
    return record.wanted if record else frozenset()


def converted_modules():
    return [record.module() for record in list(_converted) if record.module() is not None]


def is_unpickled(module, forward):
    """Whether the module's own forward is its class's, as after unpickling a converted module."""
    return getattr(forward, "__self__", None) is module and forward.__func__ is type(module).forward


def why_kept(module, cls):
    """The reason why a module of class `cls` cannot get a forward of its own, or None."""
    if type(module).forward is not cls.forward:
        return f"{type(module).__qualname__} has a forward of its own"
    own = vars(module).get("forward")
    if own is not None and "_old_forward" not in vars(module) and not is_unpickled(module, own):
        return "the module has a forward of its own, which captured the original (accelerate's mixed precision, kernelize)"
    return None


def places_for(module, places):
    """[(place, class)] of the patches that apply to the module. Functions and whole classes belong to no module."""
    found = []
    for place in places:
        cls, _ = locate(place.module, place.path)
        if isinstance(cls, type) and isinstance(module, cls):
            found.append((place, cls))
    return found


def wants(patch, module):
    """Whether the patch replaces a method of the module's class."""
    owners = (locate(patch.module, path)[0] for path in patch.attributes)
    return any(isinstance(owner, type) and isinstance(module, owner) for owner in owners)


def convert(modules, patches_of):
    """Applies `patches_of(module)` to each module; returns the names of the patches that matched a module."""
    taken, plans, functions, changed = set(), {}, {}, False
    for module in modules:
        sharding.inherit_forward(type(module))
        patches = tuple(patches_of(module))
        key = frozenset(patch.name for patch in patches)
        if key not in plans:
            plans[key] = plan(patches).values()
        found = places_for(module, plans[key])
        wanted = frozenset(patch.name for patch in patches if found and wants(patch, module))
        record = record_of(module)
        if record and set(found) == record.found:
            record.wanted = wanted
            taken |= record.names
            continue
        if record:
            record.undo()
            changed = True
        originals, names = {}, set()
        for place, cls in found:
            attribute = place.path.split(".")[-1]
            if attribute == "forward":
                if why_kept(module, cls):
                    continue
                attribute = "_old_forward" if "_old_forward" in vars(module) else "forward"
            if place not in functions:
                functions[place] = build(place)
            # After unpickling, the forward is the class's: there is no original to restore.
            originals[attribute] = vars(module)[attribute] if attribute == "_old_forward" else ABSENT
            adds = getattr(place.make, "adds", None)
            method = Added(functions[place], module, adds) if adds else types.MethodType(functions[place], module)
            vars(module)[attribute] = method
            names |= place.names
        if originals:
            vars(module)["_tegula"] = Converted(module, frozenset(names), wanted, originals, frozenset(found))
            taken |= names
            changed = True
    if changed:
        forget_compiled()
    return taken
