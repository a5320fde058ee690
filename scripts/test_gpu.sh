#!/bin/sh
# Runs the spec driver on GPU 0: every op on every entry of its chain, several ops at a time, for
# most of the time goes into the reference on the CPU; then the runtime on GPU and CPU.
#   scripts/test_gpu.sh BUILD_DIR [LOG_DIR]
# Entries of other architectures than the GPU's own are tested too: the build compiles each of them
# for every GPU of TEGULA_CUDA_ARCHS. A build for PTX alone goes through the driver's compiler.
set -eu
build=$1
logs=${2:-$build/test_gpu}
mkdir -p "$logs"

# Called again by xargs with the name of one row.
if [ -n "${3:-}" ]; then
  start=$(date +%s)
  status=0
  "$build/tests/test_ops" --backend cuda --op "$3" >"$logs/$3.log" 2>&1 || status=$?
  echo "$([ $status = 0 ] && echo ok || echo "FAILED ($status)") $3" \
    "$(($(date +%s) - start)) s: $(tail -n 1 "$logs/$3.log")"
  [ $status = 0 ] || {
    grep -m 3 FAILED "$logs/$3.log"
    exit 1
  }
  exit 0
fi

failed=0
for test in test_device test_cross_entropy test_gpu_runtime; do
  if "$build/tests/$test" >"$logs/$test.log" 2>&1; then
    echo "ok $test"
  else
    echo "FAILED $test"
    grep -A 3 'FAILED\|ERROR' "$logs/$test.log" | head -n 20
    failed=1
  fi
done
rows=$("$build/tests/test_ops" --list | cut -d ' ' -f 1 | LC_ALL=C sort -u)
# shellcheck disable=SC2086 # one word for each row
printf '%s\n' $rows | xargs -P "$(nproc)" -I {} "$0" "$build" "$logs" {} || failed=1
if [ $failed = 1 ]; then
  echo "test-gpu: failed"
  exit 1
fi
echo "test-gpu: all passed"
