#!/bin/sh
# Measures what docs/performance.md and docs/accuracy.md report, and writes both.
#   scripts/bench.sh BUILD_DIR
# Figures are recorded in bench/results/cpu.csv, on a quiet machine only; what it holds for this
# commit is not measured again. BENCH_RECORD=no prints them instead, whatever else is running.
# LLMC_DIR   checkout of https://github.com/karpathy/llm.c, the peer of the training step
# LIBGOMP_BUILD  a build of the last commit whose loops ran on OpenMP (docs/lab/threads.md)
# PYTHON     a Python with PyTorch (default: .venv's, which `make test` makes, else python3)
# Without one of them the rows of those peers are left out, and named here.
set -eu
cd "$(dirname "$0")/.."
build=$1
python=${PYTHON:-}
for candidate in .venv/bin/python python3; do
  if [ -z "$python" ] && "$candidate" -c 'import torch' 2>/dev/null; then
    python=$candidate
  fi
done

record="--csv bench/results/cpu.csv"
if [ "${BENCH_RECORD:-yes}" = no ]; then
  record=
fi
mkdir -p bench/results
export PYTHONPATH="$PWD/python:$PWD/bench${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
missing=
failed=

# Runs the command; the others go on if it fails.
measure() {
  # shellcheck disable=SC2086 # words
  "$@" $record || failed="$failed
  $*"
}

# The bars first; what only informs comes after.
measure "$build/bench/bench_ops" --dtype f32
measure python3 bench/train_step.py --build "$build" --torch "${python:-none}" \
  ${LLMC_DIR:+--llmc "$LLMC_DIR"}
if [ -z "${LLMC_DIR:-}" ]; then
  missing="$missing llm.c(LLMC_DIR)"
fi
if [ -n "$python" ]; then
  measure "$python" bench/baselines.py --build "$build" --dtype f32
fi
if [ -n "${LIBGOMP_BUILD:-}" ]; then
  measure python3 bench/busy_machine.py --build "$build" --before "$LIBGOMP_BUILD"
else
  measure python3 bench/busy_machine.py --build "$build" --only busy
  missing="$missing libgomp's-pool(LIBGOMP_BUILD)"
fi
measure "$build/bench/bench_ops" --dtype bf16
measure "$build/bench/bench_ops" --dtype f16 --op attention_fwd \
  --shape b8_h32_kv8_s1_sk4096_d128_causal
if [ -n "$python" ]; then
  measure "$python" bench/baselines.py --build "$build" --dtype bf16 --op linear
  measure "$python" bench/baselines.py --build "$build" --dtype bf16 --op attention
  measure "$python" bench/baselines.py --build "$build" --dtype bf16 --op linear_int8 \
    --shape 512x1024x3072_dynamic
  measure "$python" bench/expert_decode.py --build "$build"
else
  missing="$missing PyTorch(with oneDNN;OpenBLAS)"
fi
if [ -n "$record" ] && [ -s bench/results/cpu.csv ]; then
  python3 bench/pages/performance.py
  if [ -n "$python" ]; then
    "$python" bench/accuracy.py --build "$build" || failed="$failed
  bench/accuracy.py"
  fi
  python3 bench/pages/performance.py --check || true # says which bars are open
fi
if [ -n "$missing" ]; then
  echo "bench: not installed, left out:$missing"
fi
if [ -n "$failed" ]; then
  echo "bench: incomplete:$failed" >&2
  exit 1
fi
