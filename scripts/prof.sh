#!/bin/sh
# Profiles one call of an op on random data with Nsight Compute; the card's clocks stay as they are.
#   scripts/prof.sh BUILD_DIR OP SHAPE [SET]       scripts/prof.sh build/release softmax 4096x32768
# OP     a row of the op table (softmax_bwd), or an op, whose forward is meant
# SET    ncu's sections: basic, detailed or full (detailed)
# PROF_FLAGS   more for one_op: --dtype f32, --entry sm80
# PROF_OUT     file for the report that ncu-ui and `ncu --import` read, instead of a printed one
set -eu
PATH=$PATH:/usr/local/cuda/bin
build=$1
row=$2
shape=$3
set=${4:-detailed}
case $row in
*_fwd | *_bwd | *_fwdbwd | *_step) ;;
*) "$build/tests/test_ops" --list --op "${row}_step" | grep -q . && row=${row}_step || row=${row}_fwd ;;
esac
if ! command -v ncu >/dev/null; then
  echo "prof: expected ncu (Nsight Compute) on the PATH" >&2
  exit 1
fi
# shellcheck disable=SC2086 # words
exec ncu --clock-control none --profile-from-start off --set "$set" \
  ${PROF_OUT:+--force-overwrite --import-source yes --export "$PROF_OUT"} \
  "$build/bench/one_op" "$row" "$shape" ${PROF_FLAGS:-}
