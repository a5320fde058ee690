#!/bin/bash
# Runs the Python tests in a virtual environment of their own, .venv.
#   scripts/test_python.sh BUILD_DIR [PYTEST_ARGUMENT...]
# Files are shared among one process for each processor, each with one thread; those that start
# processes of their own or measure time come afterwards, alone. With arguments: one process.
# Tests marked `nightly` run with the argument `-m nightly` alone.
# TEGULA_TORCH  requirement or wheel of PyTorch (default torch==2.13.0; a CPU build is enough, and
#               much smaller: name its wheel where the package index serves another one), or
#               "none": the comparisons with live models are skipped, and listed.
#               More requirements may follow: "torch==2.9.0 transformers==4.57.6" are the oldest served.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
torch=${TEGULA_TORCH:-torch==2.13.0}
alone="ops/test_binding.py ops/test_eager_path.py ops/test_threads.py patching/test_patched_distributed.py
  runtime/test_model_overhead.py"
scripts/python_environment.sh

# The build may be older than Python's headers on this machine.
if [ ! -e "$build/python/tegula/_core.abi3.so" ]; then
  cmake "$build" >/dev/null
  cmake --build "$build" --target tegula_python
fi

export TEGULA_BUILD="$PWD/$build" PYTHONPATH="$PWD/$build/python" PYTHONDONTWRITEBYTECODE=1
if [ "$torch" = none ]; then
  export TEGULA_TORCH=none
  echo "test: TEGULA_TORCH=none, without PyTorch; skipped below: comparisons with live models"
else
  .venv/bin/python -c 'import torch, transformers' # not installed: an error, not a skip
fi
pytest=(.venv/bin/python -m pytest -q -rs -p no:cacheprovider -m "not nightly")
if [ $# -gt 0 ]; then
  exec "${pytest[@]}" tests/python "$@"
fi

ignored=()
last=()
for name in $alone; do
  ignored+=("--ignore=tests/python/$name")
  last+=("tests/python/$name")
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 "${pytest[@]}" --durations=40 --durations-min=0.5 \
  -n "$(nproc)" --dist loadfile "${ignored[@]}" tests/python 2>&1 | tee "$log" || failed=1
"${pytest[@]}" --durations=40 --durations-min=0.5 "${last[@]}" 2>&1 | tee -a "$log" || failed=1
# One line for both: "test: 1230 passed, 19 skipped".
sed -n 's/^[= ]*\([0-9].*\) in [0-9.]*s.*/\1/p' "$log" | tr ',' '\n' | awk '
  { sum[$2 == "error" ? "errors" : $2 == "warning" ? "warnings" : $2] += $1 }
  END {
    n = split("failed errors passed skipped xfailed xpassed warnings", word, " ")
    for (i = 1; i <= n; i++) if (sum[word[i]]) { line = line (line ? ", " : "") sum[word[i]] " " word[i] }
    print "test: Python: " (line ? line : "nothing ran")
  }'
exit $failed
