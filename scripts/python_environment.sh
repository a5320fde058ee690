#!/bin/sh
# Makes .venv, the virtual environment of the Python tests, again only when what it should hold has
# changed. scripts/test_python.sh says what TEGULA_TORCH may be.
set -eu
cd "$(dirname "$0")/.."
torch=${TEGULA_TORCH:-torch==2.13.0}
scripts/setup.sh test
wanted=$(
  python3 --version
  echo "$torch"
  cat scripts/requirements-test.txt scripts/requirements-live.txt
)
if [ "$(cat .venv/wanted 2>/dev/null || true)" = "$wanted" ]; then
  exit 0
fi
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
