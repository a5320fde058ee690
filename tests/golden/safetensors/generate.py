#!/usr/bin/env python3
"""Writes the golden files of the safetensors reader, and expected.tsv beside them.

    python3 tests/golden/safetensors/generate.py

The files are made by hand from the format's description (huggingface/safetensors 24b0b28, README "Format"), not by
any library; the expected status and byte of each follow from that text and from src/files/safetensors/safetensors.h: errors of
syntax name the byte behind the token at which the JSON goes wrong, errors of meaning none. Files whose
name starts with "fuzz_" were found by fuzz/fuzz_safetensors.c; their bytes stand here in hex.

expected.tsv: file, status, byte of the message (empty where it has none), a part of the message.
"""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
CASES = []


def case(name, data, status="OK", byte="", part=""):
    CASES.append((name + ".safetensors", data, status, byte, part))


def file(header, data=b"", length=None):
    """A file around a header text; `length` overrides the true header length."""
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def bad(name, header, part, behind=None, data=b"", length=None, byte=""):
    """A refused file; `behind` is what ends (or the n-th of it) at the expected byte of an error of syntax. An error
    of meaning has no byte."""
    if behind is not None:
        text = header.encode() if isinstance(header, str) else header
        what, nth = behind if isinstance(behind, tuple) else (behind, 0)
        what = what.encode() if isinstance(what, str) else what
        at = -1
        for _ in range(nth + 1):
            at = text.index(what, at + 1)
        byte = 8 + at + len(what)
    case("bad_" + name, file(header, data, length), "BAD_FILE", byte, part)


def entry(dtype, shape, begin, end, **more):
    return dict(dtype=dtype, shape=shape, data_offsets=[begin, end], **more)


def compact(tensors):
    return json.dumps(tensors, separators=(",", ":"), ensure_ascii=False)


ONE = compact({"a": entry("F32", [2], 0, 8)})

# Accepted.
case("ok_empty", file("{}"))
case("ok_one", file(ONE, bytes(8)))
case("ok_padded", file(ONE + " " * 13, bytes(8)))
case("ok_scalar", file(compact({"s": entry("I64", [], 0, 8)}), bytes(8)))
case("ok_no_elements", file(compact({"e": entry("F32", [0, 5], 0, 0), "a": entry("U8", [1], 0, 1)}), b"x"))
case("ok_metadata", file(compact({"__metadata__": {"format": "pt", "k": "é\n"}, "a": entry("U8", [3], 0, 3)}), b"abc"))
case("ok_unaligned", file(compact({"b": entry("U8", [1], 0, 1), "w": entry("F32", [1], 1, 5)}), bytes(5)))
case("ok_order", file(compact({"z": entry("U8", [2], 3, 5), "y": entry("U8", [3], 0, 3)}), b"yyyzz"))
NOTED = compact({"a": entry("U8", [1], 0, 1, note={"x": [1, None, 2.5e300, -0.0]})})
case("ok_unknown_key", file(NOTED, b"a"))
case("ok_sub_byte", file(compact({"a": entry("F4", [2, 3], 0, 3), "b": entry("F6_E2M3", [4], 3, 6)}), bytes(6)))
case("ok_rank_9", file(compact({"a": entry("U8", [1] * 8 + [2], 0, 2)}), b"ab"))
case("ok_escaped_name", file('{"a\\u0062\\ud83d\\ude42":' + compact(entry("U8", [1], 0, 1)) + "}", b"a"))
DTYPES = """BOOL 8, F4 4, F6_E2M3 6, F6_E3M2 6, U8 8, I8 8, F8_E5M2 8, F8_E4M3 8, F8_E8M0 8, F8_E4M3FNUZ 8,
F8_E5M2FNUZ 8, I16 16, U16 16, F16 16, BF16 16, I32 32, U32 32, F32 32, C64 64, F64 64, I64 64, U64 64"""


def all_dtypes():
    """Eight elements of each type, which take as many bytes as one takes bits."""
    tensors, at = {}, 0
    for name, bits in (row.split() for row in DTYPES.split(",")):
        tensors[name] = entry(name, [8], at, at + int(bits))
        at += int(bits)
    return file(compact(tensors), bytes(at))


case("ok_all_dtypes", all_dtypes())

# The length.
case("bad_no_bytes", b"", "BAD_FILE", 0, "8 bytes of header length, got a file of 0 bytes")
case("bad_seven_bytes", bytes(7), "BAD_FILE", 7, "8 bytes of header length")
case("bad_length_0", bytes(8), "BAD_FILE", 8, "begins with '{', got an empty one")
bad("length_above_file", "{}", "at most 2 (the file has 10 bytes), got 3", length=3, byte=0)
bad("length_above_limit", "{}", "at most 100000000, got 100000001", length=100000001, byte=0)
bad("length_huge", "{}", "got 18446744073709551615", length=2**64 - 1, byte=0)
bad("truncated_header", ONE[:-3], "expected JSON, got this error: ']' expected near end of file", ONE[:-3])

# The JSON.
case("ok_leading_space", file(" " + ONE, bytes(8)))
case("ok_white_space", file(" \t\n\r" + ONE + "\r\n\t ", bytes(8)))
case("ok_trailing_newline", file(ONE + "\n", bytes(8)))
bad("leading_vertical_tab", " \v" + ONE, r"begins with '{', got \x0b", data=bytes(8), byte=9)
bad("trailing_form_feed", ONE + "\f", "end of file expected near '", ONE + "\f", data=bytes(8))
bad("blank", "  \n", "begins with '{', got an empty one", byte=11)
bad("array", "[]", "begins with '{', got [", byte=8)
bad("byte_order_mark", "\ufeff{}", "begins with '{'", byte=8)
bad("trailing_nul", ONE + "\0", "a byte of value 0", ONE, data=bytes(8))
bad("trailing_object", ONE + "{}", "end of file expected near '{'", ONE + "{", data=bytes(8))
bad("not_utf8", ONE.encode().replace(b'"a"', b'"\xff"'), "unable to decode byte 0xff", '{"', data=bytes(8))
bad("surrogate", ONE.replace('"a"', '"\\ud800"'), "invalid Unicode '\\uD800'", '\\ud800"', data=bytes(8))
NUL = r"text without \u0000, got it near '"
bad("nul_in_name", ONE.replace('"a"', '"a\\u0000b"'), NUL + r'"a\u0000b"', '\\u0000b"', data=bytes(8))
bad("nul_in_metadata_key", '{"__metadata__":{"k\\u0000":""}}', NUL + r'"k\u0000"', '\\u0000"')
bad("nul_in_dtype", ONE.replace("F32", "F32\\u0000"), r'expected one such as "F32", got "F32\x00"', data=bytes(8))
case("ok_nul_in_metadata", file('{"__metadata__":{"k":"v\\u0000w"},' + ONE[1:], bytes(8)))
case("ok_metadata_null", file('{"__metadata__":null,' + ONE[1:], bytes(8)))
bad("nul_behind_number", ONE.replace("[2]", "[2\0]"), "a byte of value 0", "[2", data=bytes(8))
bad("nan", ONE.replace("[2]", "[NaN]"), "invalid token near 'NaN'", "NaN", data=bytes(8))
bad("leading_zero", ONE.replace("[2]", "[02]"), "invalid token near '0'", "[0", data=bytes(8))
bad("trailing_comma", ONE[:-1] + ",}", "string or '}' expected near '}'", ",}", data=bytes(8))
bad("duplicate_name", ONE[:-1] + "," + ONE[1:], "duplicate object key near '\"a\"'", ('"a"', 1), data=bytes(8))
bad(
    "duplicate_escaped",
    ONE[:-1] + "," + ONE[1:].replace('"a"', '"\\u0061"'),
    "duplicate object key near '\"\\u0061\"'",
    '"\\u0061"',
    data=bytes(8),
)
bad(
    "duplicate_key",
    ONE.replace('"dtype":"F32"', '"dtype":"F32","dtype":"F32"'),
    "duplicate object key near '\"dtype\"'",
    ('"dtype"', 1),
    data=bytes(8),
)
bad("deep", '{"a":{"x":' + "[" * 2047 + "]" * 2047 + "}}", "maximum parsing depth reached", "[" * 2047)
HUGE = "9223372036854775808"
bad("number_2_63", NOTED.replace("[1,", f"[{HUGE},"), "too big integer", HUGE, data=b"a")
bad("number_overflow", NOTED.replace("2.5e+300", "2.5e400"), "real number overflow", "2.5e400", data=b"a")

# Entries.
bad("entry_number", '{"a":7}', 'tensor "a": expected an object with dtype, shape and data_offsets, got 7')
bad("entry_null", '{"a":null}', 'tensor "a": expected an object with dtype, shape and data_offsets, got null')
bad("no_dtype", '{"a":{"shape":[],"data_offsets":[0,1]}}', 'dtype: expected one such as "F32", got none', data=b"a")
bad("no_shape", '{"a":{"dtype":"U8","data_offsets":[0,1]}}', "shape: expected an array of extents, got none", data=b"a")
bad("no_offsets", '{"a":{"dtype":"U8","shape":[1]}}', "data_offsets: expected an array [begin, end], got none", data=b"a")
bad("dtype_unknown", ONE.replace("F32", "F33"), 'tensor "a": dtype: expected one such as "F32", got "F33"', data=bytes(8))
bad("dtype_case", ONE.replace("F32", "f32"), 'got "f32"', data=bytes(8))
bad("dtype_number", ONE.replace('"F32"', "32"), 'dtype: expected one such as "F32", got 32', data=bytes(8))
bad("shape_number", ONE.replace("[2]", "2"), 'tensor "a": shape: expected an array of extents, got 2', data=bytes(8))
EXTENT = "shape: expected an extent, an integer from 0 to 2^63 - 1, got "
bad("shape_negative", ONE.replace("[2]", "[-2]"), EXTENT + "-2", data=bytes(8))
bad("shape_minus_0", ONE.replace("[2]", "[-0]"), "data_offsets: expected 0 bytes, as dtype and shape say", data=bytes(8))
bad("shape_float", ONE.replace("[2]", "[2.0]"), EXTENT + "2.0", data=bytes(8))
bad("shape_exponent", ONE.replace("[2]", "[2e0]"), EXTENT + "2.0", data=bytes(8))
bad("shape_text", ONE.replace("[2]", '["2"]'), EXTENT + '"2"', data=bytes(8))
bad("shape_2_63", ONE.replace("[2]", f"[{HUGE}]"), "too big integer", HUGE, data=bytes(8))
OFFSETS = 'tensor "a": data_offsets: expected '
bad("offsets_one", ONE.replace("[0,8]", "[0]"), OFFSETS + "an array [begin, end], got [0]", data=bytes(8))
bad("offsets_three", ONE.replace("[0,8]", "[0,8,8]"), OFFSETS + "an array [begin, end], got [0,8,8]", data=bytes(8))
bad("offsets_object", ONE.replace("[0,8]", '{"b":0}'), OFFSETS + 'an array [begin, end], got {"b":0}', data=bytes(8))
bad("offsets_nested", ONE.replace("[0,8]", "[[0],8]"), OFFSETS + "an offset, an integer", data=bytes(8))
bad("offset_float", ONE.replace("[0,8]", "[0.0,8]"), OFFSETS + "an offset, an integer", data=bytes(8))
bad("offset_negative", ONE.replace("[0,8]", "[0,-8]"), OFFSETS + "an offset, an integer", data=bytes(8))
TOO_FAR = "18446744073709551616"
bad("offset_huge", ONE.replace("[0,8]", f"[0,{TOO_FAR}]"), "too big integer", TOO_FAR, data=bytes(8))
bad("offsets_reversed", ONE.replace("[0,8]", "[8,0]"), OFFSETS + "begin <= end, got [8,0]", data=bytes(8))
SHORT = ONE.replace("[0,8]", "[0,7]")
bad("size_mismatch", SHORT, OFFSETS + "8 bytes, as dtype and shape say, got [0,7]", data=bytes(7))
BYTES = 'tensor "a": shape: expected F32 elements that fill whole bytes, below 2^61, got ['
bad("product_overflow", ONE.replace("[2]", "[4294967296,4294967296]"), BYTES + "4294967296,", data=bytes(8))
bad("product_overflow_0", ONE.replace("[2]", "[4294967296,4294967296,0]"), BYTES + "4294967296,", data=bytes(8))
bad("bits_overflow", ONE.replace("[2]", "[2305843009213693952]"), BYTES + "2305", data=bytes(8))
bad("wraps_to_size", ONE.replace("[2]", "[4611686018427387906]"), BYTES + "4611", data=bytes(8))
bad("sub_byte", compact({"a": entry("F4", [3], 0, 2)}), "F4 elements that fill whole bytes, below 2^61, got [3]", data=bytes(2))

# Metadata.
bad("metadata_text", '{"__metadata__":"x"}', '__metadata__: expected an object of strings, got "x"')
bad("metadata_number", '{"__metadata__":{"a":"b","n":3}}', '__metadata__: "n": expected a string, got 3')
bad("metadata_null", '{"__metadata__":{"n":null}}', '__metadata__: "n": expected a string, got null')
bad("metadata_object", '{"__metadata__":{"n":{"m":"o"}}}', '"n": expected a string, got {"m":"o"}')

# Places.
TWO = {"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 2, 4)}
HOLE = compact({**TWO, "b": entry("U8", [2], 3, 5)})
NO_OVERLAP = 'tensor "b": data_offsets: expected data from byte 2 on (no overlap), got '
bad("hole", HOLE, 'tensor "b": data_offsets: expected data from byte 2 on (no hole), got [3,5]', data=bytes(5))
bad("hole_at_start", compact({"a": entry("U8", [2], 1, 3)}), "from byte 0 on (no hole), got [1,3]", data=bytes(3))
bad("overlap", compact({**TWO, "b": entry("U8", [2], 1, 3)}), NO_OVERLAP + "[1,3]", data=bytes(3))
bad("same_place", compact({**TWO, "b": entry("U8", [2], 0, 2)}), NO_OVERLAP + "[0,2]", data=bytes(2))
bad("inside", compact({**TWO, "b": entry("U8", [0], 1, 1)}), NO_OVERLAP + "[1,1]", data=bytes(2))
bad("short_file", ONE, OFFSETS + "offsets up to 7, the bytes of data in the file, got [0,8]", data=bytes(7))
bad("no_data", ONE, OFFSETS + "offsets up to 0")
bad(
    "beyond_2_62",
    ONE.replace("[2]", "[1152921504606846972]").replace("[0,8]", "[0,4611686018427387888]"),
    BYTES + "1152",
    data=bytes(8),
)
bad("far_end", compact({"a": entry("U8", [2**60], 0, 2**60)}), OFFSETS + "offsets up to 3", data=bytes(3))
bad("trailing_bytes", ONE, "the end of the file, got 5 more bytes", byte=8 + len(ONE) + 8, data=bytes(13))
bad("empty_with_data", "{}", "the end of the file, got 1 more bytes", byte=10, data=b"x")


def main():
    for old in HERE.glob("*.safetensors"):
        old.unlink()
    rows = ["# file\tstatus\tbyte\tpart of the message"]
    for name, data, status, byte, part in CASES:
        (HERE / name).write_bytes(data)
        rows.append(f"{name}\t{status}\t{byte}\t{part}")
    (HERE / "expected.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
