#!/bin/sh
# Measures Tegula's ops on GPU 0 beside a copy of their bytes, PyTorch, torch.compile and
# Liger-Kernel, and what a call costs the host.
#   scripts/bench_gpu.sh BUILD_DIR [ARGUMENT OF gpu_ops.py...]
# Figures are recorded in bench/results/h200.csv; what it holds for this commit is not measured
# again. BENCH_CSV names another file; BENCH_RECORD=no prints them instead.
# LIGER_DIR  sources of https://github.com/linkedin/Liger-Kernel, unless the package is installed
# PYTHON     a Python with PyTorch for CUDA (default: python3)
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
python=${PYTHON:-python3}
csv=${BENCH_CSV:-bench/results/h200.csv}
export PYTHONDONTWRITEBYTECODE=1
status=0
"$build/bench/launch_cost" || status=1
if [ "${BENCH_RECORD:-yes}" = no ]; then
  "$python" bench/gpu_ops.py --build "$build" "$@" || status=$?
else
  "$python" bench/gpu_ops.py --build "$build" --csv "$csv" "$@" || status=$?
  if [ "$csv" = bench/results/h200.csv ] && [ -s "$csv" ]; then
    "$python" bench/performance.py
    "$python" bench/kernel_pages.py
  fi
fi
exit $status
