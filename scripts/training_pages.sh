#!/bin/sh
# Writes what is made of bench/results/h200.csv and h100.csv: docs/performance.md and docs/bars.md,
# plots and page in docs/performance/ (of h200.csv, with matplotlib only), the figures of
# docs/kernels/, README.md's chart and its caption.
#   scripts/training_pages.sh BUILD_DIR
# PYTHON  a Python for the package that was built (default: python3)
set -eu
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/$1/python:$PWD/python:$PWD/bench${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
python=${PYTHON:-python3}
"$python" -m tegula.bench report --csv bench/results/h200.csv --out docs/performance
"$python" bench/pages/performance.py
"$python" bench/pages/kernel_pages.py
"$python" bench/pages/headline.py
