#!/bin/bash
# What .ci/run leaves out, beside what it runs: see the table in CONTRIBUTING.md. Every part runs,
# also behind one that failed. Logs: build/nightly/.
set -uo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
export TEGULA_TORCH=${TEGULA_TORCH:-torch==2.13.0}
logs=build/nightly
mkdir -p $logs
failed=""

# part NAME COMMAND...
part() {
  local name=$1 start=$SECONDS verdict=ok
  shift
  "$@" >"$logs/$name.log" 2>&1 || verdict=FAILED
  printf '%-7s %-16s %5d s\n' $verdict "$name" $((SECONDS - start))
  if [ $verdict = FAILED ]; then
    failed="$failed $name"
    tail -n 100 "$logs/$name.log"
  fi
}

# All C tests as clang optimises them.
clang() {
  cmake --preset check-clang && cmake --build build/check-clang &&
    ctest --preset check-clang -j "$(nproc)" && ctest --preset check-clang-nightly -j "$(nproc)"
}

# All C tests as built by gcc with every function instrumented.
instrumented() {
  cmake --preset asan -DTEGULA_INSTRUMENT_ALL=ON && cmake --build build/asan &&
    ctest --preset asan -j "$(nproc)" && ctest --preset asan-nightly -j "$(nproc)"
}

# Every kernel optimised, for a GPU of each entry, and sm80's for the next one too.
kernels() {
  if ! command -v nvcc >/dev/null && ! [ -x /usr/local/cuda/bin/nvcc ]; then
    echo "nightly: no nvcc: without kernels for GPUs"
    return
  fi
  cmake --preset check -B build/nightly-kernels -DTEGULA_CUDA_ONCE=OFF -DTEGULA_CUDA_ARCHS="7.5 8.0 9.0a" &&
    cmake --build build/nightly-kernels --target tegula_cuda_kernels
}

# Python tests in one process with all its threads.
python_threads() {
  cmake --preset check && cmake --build build/check && scripts/test_python.sh build/check tests/python
}

# Those that take minutes: the last -m counts.
python_nightly() {
  OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 scripts/test_python.sh build/check -m nightly -n "$(nproc)" --dist loadfile
}

# The dashboards in a browser; where none is, the test says what it lacks.
python_browser() {
  .venv/bin/pip install -q --disable-pip-version-check --no-input --target build/browser plotly playwright
  TEGULA_BUILD=$PWD/build/check PYTHONPATH=$PWD/build/check/python:$PWD/build/browser PYTHONDONTWRITEBYTECODE=1 \
    .venv/bin/python -m pytest -q -rs -p no:cacheprovider -m nightly tests/python/bench/test_dashboards.py
}

scripts/setup.sh ci || exit 1
part cppcheck scripts/check/check_cppcheck.sh all
part tidy scripts/check/check_tidy.py --units all
part sanitizers instrumented
part clang clang
part kernels kernels
part python python_threads
part python-nightly python_nightly
part python-browser python_browser
if [ -n "$failed" ]; then
  echo "nightly: failed:$failed"
  exit 1
fi
echo "nightly: all passed"
