#!/bin/sh
# Records a timeline of forward passes with Nsight Systems, with marks of passes, layers and ops, and prints what they took.
#   scripts/nsys.sh BUILD_DIR [BENCH_OPTION...]     scripts/nsys.sh build/release forward --preset gpt2 --device cuda
# Without options: forward passes of gpt_tile_medium on GPU 0. NSYS_OUT names the report (forward.nsys-rep).
set -eu
PATH=$PATH:/usr/local/cuda/bin
build=$1
shift
[ $# -gt 0 ] || set -- forward --preset gpt_tile_medium --device cuda
if ! command -v nsys >/dev/null; then
  echo "nsys: expected Nsight Systems (nsys) on the PATH; it comes with the CUDA toolkit or as the package nsight-systems" >&2
  exit 1
fi
out=${NSYS_OUT:-forward}
nsys profile --force-overwrite true --trace cuda,nvtx,osrt --sample none --output "$out" "$build/src/cli/tegula" bench "$@" --nvtx
nsys stats --force-export true --report nvtx_sum,cuda_gpu_kern_sum,cuda_api_sum --format column "${out%.nsys-rep}.nsys-rep"
echo "the timeline: nsys-ui ${out%.nsys-rep}.nsys-rep"
