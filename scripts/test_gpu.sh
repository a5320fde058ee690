#!/bin/sh
# Runs the spec driver on GPU 0: every op on every entry of its chain, several ops at a time, for
# most of the time goes into the reference on the CPU; beside them the tests of device, runtime and
# single kernels. Then every op once more from PTX alone, through the driver's compiler, if the build
# holds PTX beside code for this GPU; a build without code for it runs from PTX anyway.
#   scripts/test_gpu.sh BUILD_DIR [LOG_DIR]      BUILD_DIR/tests is all it needs
# Entries of other architectures than the GPU's own are tested too: the build compiles each of them
# for every GPU of TEGULA_CUDA_ARCHS. PTX is there if that list names it: "9.0a PTX", "8.0 PTX".
# TEST_GPU_PASSES    code ptx
# TEST_GPU_ELEMENTS  most elements of a case's tensors (any number)
set -eu
build=$1
logs=${2:-$build/test_gpu}
mkdir -p "$logs"

# Called again by xargs with a pass and a row, with its dtype behind a dot where a row is long, or a
# test. What is from PTX alone leaves out cublasLt, which is machine code.
if [ -n "${4:-}" ]; then
  start=$(date +%s)
  status=0
  case $4 in *.*) dtype=${4#*.} ;; *) dtype= ;; esac
  case $4 in
  test_*) set -- "$1" "$2" "$3" "$4" "$build/tests/$4" ;;
  *)
    set -- "$1" "$2" "$3" "$4" "$build/tests/test_ops" --backend cuda --op "${4%.*}" \
      ${dtype:+--dtype "$dtype"} ${TEST_GPU_ELEMENTS:+--max-elements "$TEST_GPU_ELEMENTS"}
    if [ "$3" = ptx ]; then
      export CUDA_FORCE_PTX_JIT=1
      set -- "$@" --unprepared
    fi
    ;;
  esac
  log=$logs/$3.$4.log
  name="$3 $4"
  shift 4
  "$@" >"$log" 2>&1 || status=$?
  echo "$([ $status = 0 ] && echo ok || echo "FAILED ($status)") $name $(($(date +%s) - start)) s:" \
    "$(grep -a '^[0-9]* passed\|PASSED  \]' "$log" | tail -n 1)"
  [ $status = 0 ] || {
    grep -m 20 -A 3 'FAILED\|ERROR' "$log"
    exit 1
  }
  exit 0
fi

# can VARIABLE: a context can be created although the driver heeds VARIABLE.
can() {
  env "$1=1" "$build/tests/test_ops" --backend cuda --unprepared --list --op rms_norm_fwd \
    >/dev/null 2>&1
}

failed=0
# A space before the long rows sorts them first.
rows=$("$build/tests/test_ops" --list ${TEST_GPU_ELEMENTS:+--max-elements "$TEST_GPU_ELEMENTS"} |
  awk '$1 ~ /^linear_(fwd|bwd)$/ { print " " $1 "." $3; next } { print $1 }' | LC_ALL=C sort -u)

# Tests that may run beside others; the longest first. That of memory fills the GPU, and that of
# leaks watches what is free.
tests="test_gpu_runtime test_engine_device test_device_large test_attention_device test_attention_few test_norm_widths
  test_cross_entropy_directions test_gpu_gradients test_decoder test_few_rows test_linear_swiglu
  test_quantised_rows test_quantised_ends test_mxfp4_device test_device test_device_threads test_memory_convert"

# pass NAME WHAT...: rows or tests.
pass() {
  name=$1
  shift
  printf '%s\n' "$@" | xargs -P "$(nproc)" -I {} "$0" "$build" "$logs" "$name" {} || failed=1
}

for which in ${TEST_GPU_PASSES:-code ptx}; do
  if [ "$which" = code ]; then
    pass code test_device_memory
    pass code test_engine_leaks
    can CUDA_DISABLE_PTX_JIT || echo "test-gpu: no code for this GPU: what follows is from PTX"
    # shellcheck disable=SC2086 # words
    pass code $tests $rows
  elif ! can CUDA_FORCE_PTX_JIT; then
    echo "test-gpu: no PTX in this build, so nothing went through the driver's compiler; build with" \
      "TEGULA_CUDA_ARCHS=\"9.0a PTX\""
  elif [ "${TEST_GPU_PASSES:-}" = ptx ] || can CUDA_DISABLE_PTX_JIT; then
    # shellcheck disable=SC2086 # words
    pass ptx $rows
  fi
done
if [ $failed = 1 ]; then
  echo "test-gpu: failed"
  exit 1
fi
echo "test-gpu: all passed"
