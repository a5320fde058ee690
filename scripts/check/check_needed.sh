#!/bin/sh
# The shared libraries need no other libraries than the design allows.
#   scripts/check/check_needed.sh BUILD_DIR
build=$1
failed=0

# check LIBRARY ALLOWED...: compares the NEEDED entries.
check() {
  path=$(find "$build/src" "$build/python" -name "$1" 2>/dev/null | head -n 1)
  [ -n "$path" ] || return 0
  library=$1
  shift
  for needed in $(readelf -d "$path" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case " $* " in
    *" $needed "*) ;;
    *)
      echo "needed: $library needs $needed; allowed: $*"
      failed=1
      ;;
    esac
  done
}

[ -n "$(find "$build/src" -name libtegula.so)" ] || {
  echo "needed: no libtegula.so below $build/src"
  exit 1
}
system="libc.so.6 libm.so.6 ld-linux-x86-64.so.2 ld-linux-aarch64.so.1"
check libtegula.so $system
runtime="libtegula.so.0 libjansson.so.4 libpcre2-8.so.0 libutf8proc.so.2 libutf8proc.so.3"
check libtegula_model.so $system $runtime
check _core.abi3.so $system libtegula.so.0
check _runtime.abi3.so $system $runtime
exit $failed
