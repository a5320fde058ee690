#!/bin/sh
# Measures what one of the commands of `python -m tegula.bench` measures, on GPU 0, and writes the pages.
#   scripts/bench_training.sh BUILD_DIR COMMAND [OPTION OF tegula.bench...]
# Figures are recorded in bench/results/h200.csv, or h100.csv on that card; what the file holds for
# this commit is not measured again. BENCH_CSV names another file; BENCH_RECORD=no keeps them in build/bench alone.
# LIGER_DIR  sources of https://github.com/linkedin/Liger-Kernel, unless the package is installed
# PYTHON     a Python with PyTorch for CUDA and transformers (default: python3)
set -eu
cd "$(dirname "$0")/.."
build=$1
command=$2
shift 2
python=${PYTHON:-python3}
card=$(scripts/card_name.sh)
csv=${BENCH_CSV:-bench/results/$card.csv}
export PYTHONPATH="$PWD/$build/python${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
commit=$("$build/bench/bench_ops" --commit)
if [ "${BENCH_RECORD:-yes}" = no ]; then
  csv=build/bench/results.csv
fi
status=0
"$python" -m tegula.bench "$command" --commit "$commit" --csv "$csv" --out build/bench \
  --no-report "$@" || status=$?
if [ "$csv" = "bench/results/$card.csv" ] && [ -s "$csv" ]; then
  scripts/training_pages.sh "$build"
fi
exit $status
