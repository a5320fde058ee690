#!/bin/sh
# Runs the Python tests on tensors of GPU 0: every file whose tests take a device, each in a process
# of its own, several at a time. It needs neither compiler nor network nor a virtual environment.
#   scripts/test_python_gpu.sh BUILD_DIR [LOG_DIR]      BUILD_DIR/python is all it needs of the build
# LOG_DIR holds a log for each file, and failures.txt: all that pytest says of tests that failed.
# PYTHON         a Python with PyTorch for CUDA and transformers (default: python3)
# TEST_PACKAGES  a folder of packages that it lacks: pytest; accelerate and peft for the tests of them.
#                What is installed goes first. Tests of packages that are nowhere are skipped.
set -eu
cd "$(dirname "$0")/.."
build=$(cd "$1" && pwd)
logs=${2:-$build/test_python_gpu}
python=${PYTHON:-python3}
packages=${TEST_PACKAGES:-}
mkdir -p "$logs"
export TEGULA_BUILD="$build" PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1 TEST_PACKAGES="$packages"
export CUDA_VISIBLE_DEVICES=0 OMP_NUM_THREADS=2 HF_HUB_OFFLINE=1

# Called again by xargs with the name of one file.
if [ -n "${3:-}" ]; then
  status=0
  "$python" -c 'import os, sys
sys.path += filter(None, [os.environ["TEST_PACKAGES"]])
import pytest
sys.exit(pytest.main(sys.argv[1:]))' -q -rs -p no:cacheprovider --device cuda tests/python/*/"$3.py" \
    >"$logs/$3.log" 2>&1 || status=$?
  [ $status != 5 ] || status=0 # all of it is skipped
  echo "$([ $status = 0 ] && echo ok || echo "FAILED ($status)") $3: $(tail -n 1 "$logs/$3.log")"
  [ $status = 0 ] || {
    grep -m 20 '^FAILED\|^ERROR\|^E  ' "$logs/$3.log" || true
    {
      echo "######## $3 ($status)"
      if grep -q '^=.* \(ERRORS\|FAILURES\) =' "$logs/$3.log"; then
        sed -n '/^=.* \(ERRORS\|FAILURES\) =/,$p' "$logs/$3.log"
      else
        cat "$logs/$3.log"
      fi
    } >"$logs/$3.failed"
    exit 1
  }
  exit 0
fi

"$python" -c 'import tegula, torch, transformers
name = torch.cuda.get_device_name(0)
kernels = tegula.device_info(0)["kernels"]
print(f"test-python-gpu: {name}, {kernels}; torch {torch.__version__}, transformers {transformers.__version__}")'
failed=0
rm -f "$logs"/*.failed "$logs/failures.txt"
# The slowest first.
for file in test_patched_models $(grep -l 'usefixtures("device"' tests/python/*/test_*.py | sed 's,.*/,,; s,\.py$,,'); do
  echo "$file"
done | awk '!seen[$0]++' | xargs -P "$(env -u OMP_NUM_THREADS nproc)" -I {} scripts/test_python_gpu.sh "$build" "$logs" {} || failed=1
echo "skipped:"
grep -h '^SKIPPED' "$logs"/*.log |
  sed 's/^SKIPPED \[\([0-9]*\)\] [^ ]*: /\1 /' |
  awk '{n = $1; $1 = ""; count[$0] += n} END {for (reason in count) print "  " count[reason] reason}' | sort -rn
if [ $failed = 1 ]; then
  cat "$logs"/*.failed >"$logs/failures.txt" && rm "$logs"/*.failed
  echo "test-python-gpu: failed, see $logs/failures.txt"
  exit 1
fi
echo "test-python-gpu: all passed"
