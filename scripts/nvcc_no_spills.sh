#!/bin/sh
# Runs nvcc (with -Xptxas -v) and fails if a kernel spills registers to memory, if attention's tiles
# have sums in memory, as they do where a loop is not unrolled, or if the assembler could not keep
# asynchronous matrix instructions in flight (its notes C75xx, C76xx).
#   scripts/nvcc_no_spills.sh NVCC ARGUMENT...
# Allowed are
# - all in the entry `any` on GPUs from 8.0 on, where sm80 stands before it: tests alone get there;
# - a few bytes of `capped` on GPUs but 9.0: their blocks have the registers that fill an H200.
capped='softmax_bwd_kernel|rotate_heads_kernel'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "$@" >"$log" 2>&1; then
  grep -v '^ptxas info' "$log" >&2
  exit 1
fi
grep -v '^ptxas info\|bytes stack frame\|^$' "$log" >&2
case " $* " in
*" -DTGI_ENTRY=any "*) any=1 ;;
*) any=0 ;;
esac
if awk -v any=$any -v capped="$capped" '
  /Compiling entry function/ { arch = $NF; gsub(/[^0-9]/, "", arch) }
  /Compiling entry function|Function properties for/ { name = $0; gsub(/.*(function|for) /, "", name) }
  /spill stores/ && !/ 0 bytes spill stores, 0 bytes spill loads/ && !(any && arch >= 80) &&
      !(arch != 90 && name ~ capped) {
    print name ": " $0
    bad = 1
  }
  /bytes stack frame/ && $1 > 0 && name ~ /attention_.*_tiles_kernel/ && !(arch != 90 && name ~ capped) {
    print name ": " $0
    bad = 1
  }
  /C7[56][0-9][0-9]/ { print name ": " $0; bad = 1 }
  END { exit !bad }' "$log" >&2; then
  echo "nvcc: expected kernels without spills, got the above" >&2
  exit 1
fi
