#!/bin/sh
# Measures Tegula's ops on GPU 0 beside a copy of their bytes, PyTorch, torch.compile and
# Liger-Kernel, what a call costs the host, from C and from Python, errors against f64, and a
# training step of GPT-2.
#   scripts/bench_gpu.sh BUILD_DIR [ARGUMENT OF gpu_ops.py...]
# Figures are recorded in bench/results/h200.csv, or h100.csv on that card; what the file holds for
# this commit is not measured again. BENCH_CSV names another file; BENCH_RECORD=no prints them
# instead. Errors go to accuracy_h200.csv beside that file; with arguments, or BENCH_ACCURACY=no, they
# are left out. So are the step and Python's calls, with arguments.
# LLMC_CUDA  a train_gpt2cu of https://github.com/karpathy/llm.c, built with cuDNN: a peer of the step
# LIGER_DIR  sources of https://github.com/linkedin/Liger-Kernel, unless the package is installed
# PYTHON     a Python with PyTorch for CUDA (default: python3)
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
python=${PYTHON:-python3}
card=$(scripts/card_name.sh)
csv=${BENCH_CSV:-bench/results/$card.csv}
accuracy=${BENCH_ACCURACY:-yes}
if [ $# -gt 0 ] || [ "${BENCH_RECORD:-yes}" = no ]; then
  accuracy=no
fi
export PYTHONPATH="$build/python:$PWD/python:$PWD/bench${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
status=0
"$build/bench/launch_cost" || status=1
if [ "${BENCH_RECORD:-yes}" = no ]; then
  "$python" bench/gpu_ops.py --build "$build" "$@" || status=$?
else
  "$python" bench/gpu_ops.py --build "$build" --csv "$csv" "$@" || status=$?
  if [ $# = 0 ]; then
    "$python" bench/gpu_ops.py --build "$build" --csv "$csv" --entry sm80 || status=$?
    "$python" bench/python_host.py "$build" --csv "$csv" || status=1
    "$python" bench/train_step.py --device cuda --build "$build" --csv "$csv" || status=1
  fi
  if [ "$accuracy" = yes ]; then
    "$python" bench/accuracy.py --device cuda --build "$build" \
      --csv "$(dirname "$csv")/accuracy_$card.csv" || status=1
  fi
  if [ "$csv" = "bench/results/$card.csv" ] && [ -s "$csv" ]; then
    "$python" bench/pages/performance.py
    "$python" bench/pages/kernel_pages.py
    "$python" bench/pages/accuracy_page.py
  fi
fi
exit $status
