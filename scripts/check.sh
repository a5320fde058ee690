#!/bin/sh
# Runs every check, says how long each took, and shows the output of those that fail.
# Needs build/check, where warnings are errors; makes it.
cd "$(dirname "$0")/.."
scripts/setup.sh check || exit 1
build=build/check
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=""

# check NAME COMMAND...
check() {
  name=$1
  shift
  start=$(date +%s)
  if "$@" >"$log" 2>&1 </dev/null; then
    printf 'ok      %-10s %4d s\n' "$name" $(($(date +%s) - start))
  else
    printf 'FAILED  %-10s %4d s\n' "$name" $(($(date +%s) - start))
    sed 's/^/    /' "$log" | tail -n 200
    failed="$failed $name"
  fi
}

warnings() {
  cmake --preset check && cmake --build $build
}

check format scripts/check_format.sh
check tree scripts/check_tree.py
check rings scripts/check_rings.py
check imports scripts/check_python_imports.py
check headers scripts/check_headers.sh
check layout scripts/check_layout.py
check cppcheck scripts/check_cppcheck.sh
check warnings warnings
check symbols scripts/check_symbols.py $build
check needed scripts/check_needed.sh $build
check size scripts/check_size.py $build
check support scripts/check_support.sh $build
check tidy scripts/check_tidy.py

if [ -n "$failed" ]; then
  echo "check: failed:$failed"
  exit 1
fi
echo "check: all passed"
