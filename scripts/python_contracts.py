#!/usr/bin/env python3
"""Writes the contracts that tegula.ops appends to its docstrings, from the public headers:

    python_contracts.py FILE

The build runs it to make tegula/ops/op_contracts.py. It imports nothing of the package."""

import ast
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPS = ROOT / "python" / "tegula" / "ops" / "__init__.py"
# Functions of tegula.ops whose contract has another name than the function with _fwd.
CONTRACT_OF = {
    "adamw_step": "adamw_step", "fused_linear_cross_entropy": "linear_cross_entropy_fwd", "pack_int8": "linear_int8_pack",
    "pack_int4": "linear_int4_pack", "pack_fp8": "linear_fp8_pack", "pack_mxfp4": "grouped_linear_mxfp4_pack",
    "clip_grad_norm_": "global_norm_fwd",
}  # fmt: skip


def contract_name(function):
    return CONTRACT_OF.get(function, f"{function}_fwd")


def header_comments():
    """The comment before each public function: {name without tg_: (header, lines)}."""
    found = {}
    for header in sorted((ROOT / "include" / "tegula").glob("*.h")):
        for comment, name in re.findall(r"/\*\*\n(.*?)\*/\nTG_API \w+\s+tg_(\w+)\(", header.read_text(), re.S):
            lines = comment.rpartition("/**\n")[2].split("\n")  # the last comment before the function
            found[name] = header.name, [re.sub(r"^ \* ?", "", line).rstrip() for line in lines]
    return found


def fields(lines):
    """The parts of a contract: the text before Math, and the named fields."""
    parts, current = {"": []}, ""
    for line in lines[lines.index("") :]:  # after the title
        named = re.match(r"(Math|Workspace|Errors|Source|Layout)\b", line)
        current = named.group(1) if named else current
        parts.setdefault(current, []).append(line)
    return {name: "\n".join(text).strip("\n") for name, text in parts.items()}


# ---- what differs in Python ----

# Errors that a caller from Python cannot make.
OF_C_ALONE = (
    "workspace missing or too small", "num_tensors < 0", "`error` may be NULL", "k without k_out or the reverse",
    "both or neither of the two input forms gate with up and gate_up",
)  # fmt: skip
# An argument in C and in Python; others have one name.
ARGUMENT = {"approximation": "approximate"}
# Functions whose argument takes other values than those named after it.
VALUES_OF = {"grouped_linear": {"activation": "GATED"}, "grouped_linear_mxfp4": {"activation": "GATED"}, "moe_mlp": {"activation": "GATED"}}


def function_sources():
    """The functions of tegula.ops and the dicts of enumerated values, from their sources: importing them needs the result
    of this program. ({name: {argument: default}}, {NAME: values})"""
    functions, values = {}, {}
    for path in [*OPS.parent.glob("*.py"), OPS.parent.parent / "enumerations.py"]:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                arguments = node.args
                last = arguments.args[len(arguments.args) - len(arguments.defaults) :]
                pairs = [*zip(last, arguments.defaults), *zip(arguments.kwonlyargs, arguments.kw_defaults)]
                functions[node.name] = {a.arg: ast.literal_eval(d) for a, d in pairs if isinstance(d, ast.Constant)}
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and node.targets[0].id.isupper():
                values[node.targets[0].id] = list(ast.literal_eval(node.value))
    return functions, values


def quoted(value):
    return f'"{value}"' if isinstance(value, str) else repr(value)


def with_defaults(text, defaults, values):
    """A scalar that C requires, or whose 0 has a name, by its values and its default in Python."""

    def scalar(match):
        start, name, rule = match.groups()
        argument = ARGUMENT.get(name, name)
        if argument not in defaults:
            return match.group()
        choices = [quoted(value) for value in values.get(argument.upper(), values.get(name.upper(), ()))]
        words = [" or ".join(choices)] if choices else []
        words.append(f"default {quoted(defaults[argument])}")
        if rule == "required with gate_up, else 0":
            words.append("read without `up`")
        else:
            words.append(re.sub(r"^(required|0 is none)[;,.]? *", "", rule))
        return start.replace(name, argument.ljust(len(name))) + "; ".join(word for word in words if word)

    return re.sub(r"^(  (\w+) +)((?:required|0 is none).*)$", scalar, text, flags=re.M)


# The field Errors of every header, in one line.
ERRORS = re.compile(
    r"Errors BAD_SHAPE(?: \((?:also: )?(?P<shape>[^()]*)\))?, BAD_DTYPE, BAD_ARGUMENT "
    r"\((?:(?P<argument>.*)\), UNSUPPORTED|(?P<of_packing>.*)\))[.;](?P<more>.*)"
)


def errors_of_python(header, text):
    """The field Errors with the exceptions that the binding raises, wrapped again."""
    words = " ".join(text.split())
    for phrase in OF_C_ALONE:
        words = re.sub(rf"(; | (?=`)|(?<=\()){re.escape(phrase)}", "", words)
    found = ERRORS.fullmatch(words)
    if not found:
        raise ValueError(f"{header}: expected Errors BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (...), UNSUPPORTED, got {words}")
    argument = found["argument"] or found["of_packing"]
    values = "; ".join(["shapes", *filter(None, (found["shape"], argument))])
    last = ", NotImplementedError (device)" if found["argument"] is not None else ""
    body = f"ValueError ({values}), TypeError (dtypes){last}.{found['more'].rstrip('.')}"
    body = body.replace("tg_context_check returns", "tegula.check raises")
    head = "Errors     "
    return "\n".join(textwrap.wrap(body.rstrip(".") + ".", 100, initial_indent=head, subsequent_indent=" " * len(head)))


def contract_text(header, lines, defaults, values):
    parts = fields(lines)
    named = [errors_of_python(header, parts["Errors"])] if "Errors" in parts else []
    named += [parts["Source"]] if "Source" in parts else []
    return f"The contract of tegula/{header}:\n\n{with_defaults(parts[''], defaults, values)}\n\n" + "\n".join(named)


def function_names():
    """The functions of tegula.ops, from __all__ in its source: importing it needs the result of this program."""
    for node in ast.parse(OPS.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return [name for name in ast.literal_eval(node.value) if name not in ("PackedWeight", "PackedExperts")]
    raise ValueError(f"{OPS}: expected __all__, got none")


def contracts_module(functions, comments):
    defaults, values = function_sources()
    texts = {}
    for name in sorted(functions):
        own = {argument.upper(): values[others] for argument, others in VALUES_OF.get(name, {}).items()}
        texts[name] = contract_text(*comments[contract_name(name)], defaults[name], {**values, **own})
    return (
        '"""Formulas, shapes, dtypes, errors and sources of ops. Generated by scripts/python_contracts.py from the public\n'
        f'headers and the signatures."""\n\nCONTRACTS = {texts!r}\n'
    )


def missing_slots(entries, comments):
    """Slots of the op table that a contract does not list with their role."""
    for entry in entries:
        text = "\n".join(comments[entry["name"]][1])
        for slot in entry["slots"]:
            role = slot["role"]
            if role and not re.search(rf"^  .*\b{slot['name']}\b.*\b{role}\b", text, re.M):
                yield f"{entry['name']}: {slot['name']}: expected a line with its role {role} in the contract"


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    target.unlink(missing_ok=True)  # an older build tree may have a link there
    target.write_text(contracts_module(function_names(), header_comments()))
