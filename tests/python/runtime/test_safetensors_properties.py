"""Properties of the safetensors reader and writer, and of what passes as JSON, against a plain model of the rules in Python.

The C side runs in tests/safetensors_tool (built with the tests; TEGULA_BUILD names the build folder, else `build`).
"""

import json
import math
import os
import pathlib
import struct
import subprocess

import pytest

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOL = pathlib.Path(os.environ.get("TEGULA_BUILD", ROOT / "build")) / "tests" / "safetensors_tool"
GOLDEN = ROOT / "tests" / "golden" / "safetensors"

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

EXAMPLES = settings(
    max_examples=int(os.environ.get("TEGULA_EXAMPLES", "250")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Tool:
    def __init__(self, output):
        self.output = output
        self.process = subprocess.Popen([TOOL, output], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, command, data):
        """("OK", tensors) or (status, message). A crash ends the process, which ends the test."""
        self.process.stdin.write(command + struct.pack("<Q", len(data)) + data)
        self.process.stdin.flush()
        status, _, rest = self.line().partition(" ")
        if status != "OK":
            return status, rest
        tensors = []
        for _ in range(int(rest)):
            name, dtype, *numbers = self.line().split(" ")
            offset, size, *shape = map(int, numbers)
            tensors.append((bytes.fromhex(name).decode(), dtype, shape, data[offset : offset + size]))
        return "OK", tensors

    def line(self):
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), f"the tool ended with {self.process.wait()}"
        return line[:-1].decode()


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    if not TOOL.exists():
        pytest.skip(f"{TOOL} is not built")
    tool = Tool(tmp_path_factory.mktemp("tool") / "written.safetensors")
    yield tool
    tool.process.stdin.close()
    assert tool.process.wait() == 0


# ---- the model of the rules ----


class Refused(Exception):
    pass


def require(condition):
    if not condition:
        raise Refused


def without_duplicates(pairs):
    keys = [key for key, _ in pairs]
    require(len(set(keys)) == len(keys))
    return dict(pairs)


def refuse(_):
    raise Refused


def check_strings(value, nul):
    """`nul`: whether a string that is no key may hold one."""
    if isinstance(value, str):
        require((nul or "\0" not in value) and not any("\ud800" <= c <= "\udfff" for c in value))
    elif isinstance(value, dict):
        for key, item in value.items():
            check_strings(key, False)
            check_strings(item, nul)
    elif isinstance(value, list):
        for item in value:
            check_strings(item, nul)


def model_integer(digits):
    require(len(digits) < 100 and -(2**63) <= int(digits) < 2**63)
    return int(digits)


def model_real(text):
    require(math.isfinite(float(text)))
    return float(text)


def model_json(data, nul=False):
    """RFC 8259 by Python's json, and what src/files/json_file.h refuses beyond it."""
    try:
        text = data.decode("utf-8")
        require(not text.startswith("\ufeff"))
        value = json.loads(
            text,
            object_pairs_hook=without_duplicates,
            parse_constant=refuse,
            parse_float=model_real,
            parse_int=model_integer,
        )
        require(isinstance(value, (dict, list)))
        check_strings(value, nul)
        return value
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise Refused from error


def is_natural(value):
    return type(value) is int and 0 <= value < 2**63


def model_entry(entry):
    require(isinstance(entry, dict) and {"dtype", "shape", "data_offsets"} <= entry.keys())
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    require(type(dtype) is str and dtype in BITS)
    require(isinstance(shape, list) and all(map(is_natural, shape)))
    require(isinstance(offsets, list) and len(offsets) == 2 and all(map(is_natural, offsets)))
    count = 1
    for extent in shape:
        count *= extent
        require(count < 2**64)
    bits = count * BITS[dtype]
    require(bits < 2**64 and bits % 8 == 0 and offsets[1] - offsets[0] == bits // 8)
    return offsets[0], offsets[1], dtype, shape


def model_safetensors(data):
    """The tensors of a file in the order of their data, or Refused."""
    require(len(data) >= 8)
    (length,) = struct.unpack("<Q", data[:8])
    require(length <= 100_000_000 and length <= len(data) - 8)
    text, body = data[8 : 8 + length], data[8 + length :]
    require(text.lstrip(b" \t\n\r").startswith(b"{"))
    header = model_json(text, nul=True)
    metadata = header.pop("__metadata__", None)
    metadata = {} if metadata is None else metadata
    require(isinstance(metadata, dict) and all(type(value) is str for value in metadata.values()))
    entries = sorted((model_entry(entry), name) for name, entry in header.items())
    at = 0
    tensors = []
    for (begin, end, dtype, shape), name in entries:
        require(begin == at)
        at = end
        tensors.append((name, dtype, shape, body[begin:end]))
    require(at == len(body))
    return tensors


def sorted_ties(tensors):
    """Tensors without elements at the same place may come in any order."""
    return sorted(tensors, key=lambda t: (t[0], t[1]))


# ---- files ----

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8).filter(lambda n: n != "__metadata__")


@st.composite
def tensor_lists(draw):
    tensors = []
    for name in draw(st.lists(names, max_size=6, unique=True)):
        dtype = draw(st.sampled_from(sorted(BITS)))
        shape = draw(st.lists(st.integers(0, 4), max_size=4))
        count = 1
        for extent in shape:
            count *= extent
        if count * BITS[dtype] % 8:
            shape.append(4)
            count *= 4
        size = count * BITS[dtype] // 8
        tensors.append((name, dtype, shape, draw(st.binary(min_size=size, max_size=size))))
    return tensors


def header_of(tensors, metadata=None):
    header = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return header


def build(text, body):
    return struct.pack("<Q", len(text)) + text + body


metadata_maps = st.none() | st.dictionaries(names, st.text(st.characters(codec="utf-8"), max_size=5))


@st.composite
def files(draw):
    tensors = draw(tensor_lists())
    header = header_of(tensors, draw(metadata_maps))
    items = draw(st.permutations(list(header.items())))
    text = json.dumps(
        dict(items),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1])),
        separators=draw(st.sampled_from([None, (",", ":")])),
    ).encode()
    before, after = (draw(st.text(" \t\n\r", max_size=9)).encode() for _ in range(2))
    return build(before + text + after, b"".join(t[3] for t in tensors)), tensors


odd_values = st.sampled_from(
    [None, True, -1, 0, 1, 2, 3, 4, 8, 0.0, 1.5, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, 2**63, 2**64, 2**64 + 1, 10**30]
    + ["", "F32", "U8", "f32", [], [0], [0, 0], [0, 1], [1, 0], [0, 1, 2], [2**32, 2**32], {}, {"a": "b"}, {"a": 1}]
)


def mutate_value(draw, value):
    """The value with one thing in it changed."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        changed = dict(value)
        kind = draw(st.integers(0, 4))
        if kind == 0:
            del changed[key]
        elif kind == 1:
            changed[draw(names)] = changed[key]
        else:
            changed[key] = mutate_value(draw, value[key])
        return changed
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        index = draw(st.integers(0, len(value) - 1))
        return value[:index] + [mutate_value(draw, value[index])] + value[index + 1 :]
    if type(value) is int and draw(st.booleans()):
        return value + draw(st.sampled_from([-2, -1, 1, 2, 2**64, 2**63]))
    return draw(odd_values)


def mutate_bytes(draw, data):
    at = draw(st.integers(0, len(data)))
    cut = draw(st.integers(0, 3))
    piece = draw(st.binary(max_size=3) | st.sampled_from([b"{", b"}", b'"', b",", b":", b" ", b"\n", b"0", b"-", b"e1"]))
    return data[:at] + piece + data[at + cut :]


@st.composite
def mutated_files(draw):
    tensors = draw(tensor_lists())
    header = header_of(tensors, draw(metadata_maps))
    for _ in range(draw(st.integers(0, 2))):
        header = mutate_value(draw, header)
    text = json.dumps(header, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    body = b"".join(t[3] for t in tensors)
    for _ in range(draw(st.integers(0, 2))):
        text = mutate_bytes(draw, text)
    if draw(st.integers(0, 4)) == 0:
        body = mutate_bytes(draw, body)
    data = build(text, body)
    if draw(st.integers(0, 6)) == 0:
        data = mutate_bytes(draw, data)
    return data


# ---- properties ----


def check_agreement(tool, data):
    """The reader accepts exactly what the model accepts, with the same tensors. A byte that it names is one of the
    file's."""
    try:
        expected = ("OK", sorted_ties(model_safetensors(data)))
    except Refused:
        expected = ("BAD_FILE", None)
    status, result = tool.ask(b"c", data)
    assert status == expected[0], (result, data)
    if status == "OK":
        assert sorted_ties(result) == expected[1]
        return
    assert result.startswith("input: ") and ": expected " in result
    start = "input: byte "
    if result.startswith(start):
        assert 0 <= int(result[len(start) :].partition(":")[0]) <= len(data)


@EXAMPLES
@given(files())
def test_every_good_file_is_read(tool, case):
    data, tensors = case
    status, result = tool.ask(b"c", data)
    assert status == "OK", result
    assert sorted_ties(result) == sorted_ties(tensors)
    check_agreement(tool, data)


@EXAMPLES
@given(mutated_files())
def test_mutated_files_are_accepted_iff_the_rules_accept(tool, data):
    check_agreement(tool, data)


@EXAMPLES
@given(files())
def test_what_is_written_reads_back_the_same(tool, case):
    data, tensors = case
    status, message = tool.ask(b"w", data)
    assert status == "OK", message
    written = tool.output.read_bytes()
    assert sorted_ties(model_safetensors(written)) == sorted_ties(tensors)
    (length,) = struct.unpack("<Q", written[:8])
    header = json.loads(written[8 : 8 + length])
    assert length % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
    order = sorted(tensors, key=lambda t: (-BITS[t[1]], t[0].encode()))
    assert list(header) == [t[0] for t in order]
    assert header == header_of(order)
    assert tool.ask(b"w", written)[0] == "OK"
    assert tool.output.read_bytes() == written


@EXAMPLES
@given(files())
def test_the_safetensors_package_reads_what_is_written(tool, case):
    safetensors = pytest.importorskip("safetensors")
    data, tensors = case
    assert tool.ask(b"w", data)[0] == "OK"
    read = dict(safetensors.deserialize(tool.output.read_bytes()))
    assert {n: (t["shape"], bytes(t["data"])) for n, t in read.items()} == {t[0]: (t[2], t[3]) for t in tensors}


@EXAMPLES
@given(mutated_files())
def test_the_safetensors_package_accepts_what_is_accepted(tool, data):
    safetensors = pytest.importorskip("safetensors")
    status, tensors = tool.ask(b"c", data)
    if status == "OK" and b"-0" not in data:  # which is 0 to us, and no integer to the package
        assert len(safetensors.deserialize(data)) == len(tensors)


def check_json(tool, data):
    try:
        model_json(data)
        expected = "OK"
    except Refused:
        expected = "BAD_FILE"
    status, message = tool.ask(b"j", data)
    assert status == expected, (message, data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@EXAMPLES
@given(json_values, st.booleans(), st.data())
def test_json_is_accepted_iff_python_and_the_limits_accept(tool, value, ascii_only, data):
    value = value if isinstance(value, (dict, list)) else [value]
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    check_json(tool, text)
    check_json(tool, mutate_bytes(data.draw, text))


@EXAMPLES
@given(st.text('{}[]",:\\u0019dDeE+-.tfn \n\x00é', max_size=12))
def test_json_syntax_by_characters(tool, text):
    check_json(tool, text.encode())
    check_json(tool, b"[" + text.encode() + b"]")


def test_the_golden_files_agree_with_the_model(tool):
    paths = sorted(GOLDEN.glob("*.safetensors"))
    assert len(paths) > 60
    for path in paths:
        check_agreement(tool, path.read_bytes())


def test_depth_limit(tool):
    for levels in (1, 126, 2047, 2048, 2049, 100000):
        for text in (b"[" * levels + b"]" * levels, b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)):
            assert tool.ask(b"j", text)[0] == ("OK" if levels <= 2048 else "BAD_FILE"), levels
