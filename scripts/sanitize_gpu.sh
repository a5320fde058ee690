#!/bin/sh
# Runs the spec driver's smaller cases under each tool of compute-sanitizer on GPU 0, several rows of
# the op table at a time, and says for each tool how many runs it found something in. bf16 on the
# best entry of the chain under each tool; under memcheck on every entry, and f32 on the best one.
# Only the library's own kernels: cublasLt's are left out.
#   scripts/sanitize_gpu.sh BUILD_DIR [LOG_DIR]      BUILD_DIR/tests/test_ops is all it needs
# SANITIZE_TOOLS      memcheck racecheck synccheck initcheck
# SANITIZE_ELEMENTS   most elements of a case's tensors (70000)
# SANITIZE_FLAGS      for test_ops in place of the above: --dtype f16 --entry any
# SANITIZE_ROWS       rows of the op table (all)
# SANITIZE_JOBS       runs at a time (one for each processor)
# SANITIZE_SECONDS    most that a run may take (240)
set -eu
build=$1
logs=${2:-$build/sanitize_gpu}
mkdir -p "$logs"
PATH=$PATH:/usr/local/cuda/bin

# Called again by xargs with a tool and a run: a row and flags for test_ops.
if [ -n "${4:-}" ]; then
  tool=$3
  name=$tool.$(echo "$4" | sed 's/ --[a-z]* /./g')
  # shellcheck disable=SC2086 # words
  set -- $4
  row=$1
  shift
  case $tool:$row in
  # Tiles in shared memory, all of whose accesses racecheck compares: minutes for a case.
  racecheck:attention_* | racecheck:linear_cross_entropy_*) elements=600 ;;
  *:softmax_* | *:cross_entropy_fwdbwd) elements=400000 ;; # where Hopper's own kernels begin
  *) elements=${SANITIZE_ELEMENTS:-70000} ;;
  esac
  start=$(date +%s)
  status=0
  timeout -k 5 "${SANITIZE_SECONDS:-240}" compute-sanitizer --tool "$tool" --error-exitcode 99 \
    --max-connections 256 "$build/tests/test_ops" --backend cuda --unprepared --op "$row" \
    --max-elements "$elements" "$@" >"$logs/$name.log" 2>&1 || status=$?
  took="$(($(date +%s) - start)) s"
  if [ $status = 0 ]; then
    echo "ok $took" >"$logs/$name.result"
  else
    echo "FAILED ($status) $took" >"$logs/$name.result"
    echo "$name: FAILED ($status), $took"
    grep -m 8 '^========= \([A-Z]\|    and \)\|FAILED\|^[a-z_]*: \|^--' "$logs/$name.log" |
      grep -v COMPUTE-SANITIZER | sed 's/^/    /'
  fi
  exit 0
fi

if ! command -v compute-sanitizer >/dev/null; then
  echo "sanitize-gpu: expected compute-sanitizer (of the CUDA toolkit) on the PATH" >&2
  exit 1
fi
rows=${SANITIZE_ROWS:-$("$build/tests/test_ops" --list | cut -d ' ' -f 1 | LC_ALL=C sort -u)}

# runs TOOL: a line for each.
runs() {
  for row in $rows; do
    if [ -n "${SANITIZE_FLAGS:-}" ]; then
      echo "$row $SANITIZE_FLAGS"
    elif [ "$1" = memcheck ]; then
      echo "$row --dtype bf16"
      echo "$row --dtype f32 --entry best"
    else
      echo "$row --dtype bf16 --entry best"
    fi
  done
}

failed=0
for tool in ${SANITIZE_TOOLS:-memcheck racecheck synccheck initcheck}; do
  rm -f "$logs/$tool".*.result
  start=$(date +%s)
  runs "$tool" |
    xargs -P "${SANITIZE_JOBS:-$(nproc)}" -I {} "$0" "$build" "$logs" "$tool" {}
  wanted=$(runs "$tool" | wc -l)
  good=$(cat "$logs/$tool".*.result 2>/dev/null | grep -c '^ok' || true)
  echo "$tool: $good of $wanted runs without errors, $(($(date +%s) - start)) s"
  [ "$good" = "$wanted" ] || failed=1
done
exit $failed
