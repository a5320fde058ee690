#!/bin/sh
# Runs the Python tests in a virtual environment of their own, .venv.
#   scripts/test_python.sh BUILD_DIR [PYTEST_ARGUMENT...]
# TEGULA_TORCH  requirement or wheel of PyTorch (default torch==2.13.0; a CPU build is enough, and
#               much smaller: name its wheel where the package index serves another one), or
#               "none": the comparisons with live models are skipped, and listed.
#               More requirements may follow: "torch==2.9.0 transformers==4.57.6" are the oldest served.
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
torch=${TEGULA_TORCH:-torch==2.13.0}
scripts/setup.sh test

# The environment is made again only when what it should hold has changed.
wanted=$(
  python3 --version
  echo "$torch"
  cat scripts/requirements-test.txt scripts/requirements-live.txt
)
if [ "$(cat .venv/wanted 2>/dev/null || true)" != "$wanted" ]; then
  echo "test: making .venv (torch: $torch)"
  rm -rf .venv
  python3 -m venv .venv
  packages="-r scripts/requirements-test.txt"
  if [ "$torch" != none ]; then
    packages="$packages -r scripts/requirements-live.txt $torch"
  fi
  # shellcheck disable=SC2086 # words
  .venv/bin/pip install -q --disable-pip-version-check --no-input $packages </dev/null
  echo "$wanted" >.venv/wanted
fi

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
exec .venv/bin/python -m pytest -q -rs -p no:cacheprovider tests/python "$@"
