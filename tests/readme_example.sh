#!/bin/sh
# Compiles and runs the C example of README.md exactly as it stands there.
#   tests/readme_example.sh BUILD_DIR
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
lib=$(dirname "$(find "$1" -name libtegula.so | head -n 1)")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$root/README.md" >"$scratch/example.c"
grep -q 'int main' "$scratch/example.c" || {
  echo "readme_example: expected a C program in README.md, got none"
  exit 1
}
gcc -std=c17 -Wall -Wextra -Wpedantic -Werror -I"$root/include" "$scratch/example.c" \
  -L"$lib" -Wl,-rpath,"$lib" -ltegula -o "$scratch/example"
"$scratch/example" >"$scratch/output"
# What README.md says the program prints.
awk '/^prints$/ {wait = 1} wait && /^```text$/ {inside = 1; next} /^```$/ {if (inside) exit} inside' \
  "$root/README.md" | diff - "$scratch/output"
