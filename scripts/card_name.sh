#!/bin/sh
# Prints the name of GPU 0's results file in bench/results/, without its end: h100 or h200. A figure
# belongs to the card that gave it.
#   scripts/card_name.sh
set -eu
case $(nvidia-smi --query-gpu=name --format=csv,noheader --id=0 2>/dev/null || true) in
*H100*) echo h100 ;;
*) echo h200 ;;
esac
