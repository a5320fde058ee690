#!/bin/sh
# docs/support.md is what the kernels and specs say today. Cure: make support.
#   scripts/check/check_support.sh BUILD_DIR
cd "$(dirname "$0")/../.."
if ! "$1/tests/test_ops" --support | diff -u docs/support.md - >/tmp/tegula_support.$$; then
  head -n 40 /tmp/tegula_support.$$
  echo "support: docs/support.md is not current; run 'make support'"
  rm -f /tmp/tegula_support.$$
  exit 1
fi
rm -f /tmp/tegula_support.$$
