#!/bin/bash
# Runs every check, says how long each took, and shows the output of those that fail.
#   scripts/check/check.sh [all|changed]
# all       clang-tidy and cppcheck read every unit (the default)
# changed   they read those that changed lately, see scripts/check/changed_units.py; kernels that did not
#           are compiled quickly, not well
# Needs build/check, where warnings are errors; makes it.
cd "$(dirname "$0")/../.." || exit 1
units=${1:-all}
scripts/setup.sh check || exit 1
build=build/check
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
TIMEFORMAT='%R %U %S'

# check NAME COMMAND...: one line, and the output where it fails; seconds, and those of processors.
check() {
  local name=$1 verdict=ok
  shift
  { time "$@" >"$logs/$name" 2>&1 </dev/null; } 2>"$logs/$name.time" || verdict=FAILED
  {
    awk -v name="$name" -v verdict=$verdict \
      '{printf "%-7s %-10s %6.1f s, %6.1f s of processors\n", verdict, name, $1, $2 + $3}' "$logs/$name.time"
    grep '^units: ' "$logs/$name" | sed 's/^/    /'
    if [ $verdict = FAILED ]; then
      echo "$name" >>"$logs/failed"
      sed 's/^/    /' "$logs/$name" | tail -n 200
    fi
  } >"$logs/$name.line"
  cat "$logs/$name.line"
}

warnings() {
  : >$logs/same_kernels
  if [ "$units" = changed ]; then
    scripts/check/changed_units.py --same-kernels scripts/nvcc_no_spills.sh >$logs/same_kernels || return
  fi
  mkdir -p $build
  cmp -s $logs/same_kernels $build/same_kernels || cp $logs/same_kernels $build/same_kernels
  cmake --preset check -DTEGULA_CUDA_QUICK="$PWD/$build/same_kernels" && cmake --build $build
}

# Those of one process run beside the build.
{
  check format scripts/check/check_format.sh
  check tree scripts/check/check_tree.py
  check rings scripts/check/check_rings.py
  check imports scripts/check/check_python_imports.py
  check headers scripts/check/check_headers.sh
  check layout scripts/check/check_layout.py
} &
check warnings warnings
wait
check symbols scripts/check/check_symbols.py $build
check needed scripts/check/check_needed.sh $build
check size scripts/check/check_size.py $build
check support scripts/check/check_support.sh $build
check cppcheck scripts/check/check_cppcheck.sh $units
check tidy scripts/check/check_tidy.py --units "$units"

if [ -s "$logs/failed" ]; then
  echo "check: failed: $(tr '\n' ' ' <"$logs/failed")"
  exit 1
fi
echo "check: all passed"
