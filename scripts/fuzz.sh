#!/bin/sh
# Builds the fuzz targets and runs each for some seconds. Seeds of fuzz_<what>.c are the files in
# fuzz/seeds/fuzz_<what>/ and tests/golden/<what>/.
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
  seeds=
  for folder in "fuzz/seeds/$target" "tests/golden/${target#fuzz_}"; do
    [ ! -d "$folder" ] || seeds="$seeds $folder"
  done
  echo "== $target, $1 s"
  # shellcheck disable=SC2086 # words
  "build/fuzz/fuzz/$target" -max_total_time="$1" -max_len=65536 -timeout=10 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/crashes/$target-" "$corpus" $seeds
done
