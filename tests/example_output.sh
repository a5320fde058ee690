#!/bin/sh
# An example prints what stands in its source, below "Prints:", and has at most 150 lines.
#   example_output.sh PROGRAM SOURCE
set -e
lines=$(grep -c '' "$2")
[ "$lines" -le 150 ] || { echo "$2: expected at most 150 lines, got $lines"; exit 1; }
expected=$(sed -n '/^\/\* Prints:$/,/^ \*\/$/p' "$2" | sed '1d;$d;s/^ \* \{0,1\}//')
[ -n "$expected" ] || { echo "$2: expected its output in a comment, got none"; exit 1; }
printed=$("$1")
[ "$printed" = "$expected" ] || { printf 'expected:\n%s\ngot:\n%s\n' "$expected" "$printed"; exit 1; }
