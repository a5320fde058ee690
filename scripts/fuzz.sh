#!/bin/sh
# Builds the fuzz targets and runs each for some seconds, from its seeds in fuzz/seeds/<target>/.
#   scripts/fuzz.sh SECONDS
# A crash is kept in build/fuzz/crashes/; it becomes a golden error file of the tests.
set -eu
cd "$(dirname "$0")/.."
cmake --preset fuzz >/dev/null
cmake --build build/fuzz
mkdir -p build/fuzz/crashes
for source in fuzz/fuzz_*.c; do
  target=$(basename "$source" .c)
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  seeds=fuzz/seeds/$target
  [ -d "$seeds" ] || seeds=
  echo "== $target, $1 s"
  # shellcheck disable=SC2086 # absent or one word
  "build/fuzz/fuzz/$target" -max_total_time="$1" -max_len=65536 -timeout=10 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/crashes/$target-" "$corpus" $seeds
done
