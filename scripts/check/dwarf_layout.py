"""Layouts of structs and values of enums, read from the debug information that gcc writes."""
import dataclasses
import pathlib
import re
import subprocess
import tempfile

DIE = re.compile(r"^ *<(\w+)><(\w+)>: Abbrev Number: \d+ \(DW_TAG_(\w+)\)")
# The value follows notes such as "(strp) (offset: 0x12): ", which vary with the version.
ATTRIBUTE = re.compile(r"^ +<\w+> +DW_AT_(\w+) *: *(?:\([^)]*\):? ?)*(.*)$")


@dataclasses.dataclass
class Entry:
    """A debugging information entry; attributes without the notes that readelf puts before them."""
    tag: str
    attributes: dict
    children: list

    def number(self, key):
        return int(self.attributes.get(key, "0").split()[0], 0)

    @property
    def name(self):
        return self.attributes.get("name", "")


def read(source, include):
    """Compiles C text; returns (top-level entries, entries by offset)."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "all.o")
        subprocess.run(["gcc", "-std=c17", "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types",
                        f"-I{include}", "-c", "-xc", "-", "-o", path],
                       input=source, text=True, check=True)
        text = subprocess.run(["readelf", "--debug-dump=info", "--wide", path], text=True,
                              check=True, stdout=subprocess.PIPE).stdout
    by_offset, path, entry = {}, [], None
    for line in text.splitlines():
        if match := DIE.match(line):
            depth, entry = int(match[1], 16), Entry(match[3], {}, [])
            by_offset[match[2]] = entry
            del path[depth:]
            if path:
                path[-1].children.append(entry)
            path.append(entry)
        elif entry and (match := ATTRIBUTE.match(line)):
            entry.attributes[match[1]] = match[2].strip()
    return path[0].children, by_offset


def type_name(entry, by_offset):
    """C spelling of the type that an entry refers to."""
    if "type" not in entry.attributes:
        return "void"
    target = by_offset[re.match(r"<(?:0x)?(\w+)>", entry.attributes["type"])[1]]
    if target.tag == "pointer_type":
        inner = type_name(target, by_offset)
        return inner if inner.endswith(")") else inner + " *"
    if target.tag == "const_type":
        return "const " + type_name(target, by_offset)
    if target.tag == "subroutine_type":
        inputs = [type_name(c, by_offset) for c in target.children if c.tag == "formal_parameter"]
        return f"{type_name(target, by_offset)} (*)({', '.join(inputs) or 'void'})"
    if target.tag == "array_type":
        counts = [c.number("upper_bound") + 1 for c in target.children]
        return type_name(target, by_offset) + "".join(f"[{n}]" for n in counts)
    return target.name
