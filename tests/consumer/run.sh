#!/bin/sh
# Installs the build into a scratch prefix and uses it as a stranger would: from C and from C++,
# found by pkg-config and by CMake.
#   tests/consumer/run.sh BUILD_DIR
set -eu
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Through DESTDIR, then moved: nothing that is installed may depend on where it was built.
DESTDIR=$scratch/stage cmake --install "$build" --prefix /opt/tegula >"$scratch/install.log" || {
  cat "$scratch/install.log"
  exit 1
}
mv "$scratch/stage/opt/tegula" "$scratch/prefix"

lib=$(dirname "$(find "$scratch/prefix" -name libtegula.so)")
readelf -d "$lib/libtegula.so" | grep -q 'SONAME.*\[libtegula\.so\.0\]' || {
  echo "consumer: expected SONAME libtegula.so.0, got:"
  readelf -d "$lib/libtegula.so" | grep SONAME
  exit 1
}

# What is installed has no symbols but the exported ones, and each library finds the other beside it.
stripped=true
grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=\(Release\|Demo\)$' "$build/CMakeCache.txt" || stripped=false
for file in "$lib/libtegula.so" "$lib/libtegula_model.so" "$scratch/prefix/bin/tegula"; do
  [ -e "$file" ] || continue
  if $stripped && readelf -SW "$file" | grep -q ' \.\(symtab\|debug_info\) '; then
    echo "consumer: expected $(basename "$file") without .symtab and .debug_info, got them"
    exit 1
  fi
  if env -u LD_LIBRARY_PATH ldd "$file" | grep 'not found'; then
    echo "consumer: expected $(basename "$file") to find what it needs, got the above"
    exit 1
  fi
done

export PKG_CONFIG_PATH="$lib/pkgconfig" LD_LIBRARY_PATH="$lib"
cd "$scratch"
# shellcheck disable=SC2046 # flags are words
gcc -std=c17 -Wall -Wextra -Wpedantic -Werror "$here/from_c.c" -o pkg_c $(pkg-config --cflags --libs tegula) -lm
# shellcheck disable=SC2046
g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror "$here/from_cxx.cpp" -o pkg_cxx $(pkg-config --cflags --libs tegula)
echo "pkg-config, $(./pkg_c)"
echo "pkg-config, $(./pkg_cxx)"

unset PKG_CONFIG_PATH LD_LIBRARY_PATH
{ cmake -S "$here" -B cmake -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_C_COMPILER=gcc \
  -DCMAKE_CXX_COMPILER=g++ && cmake --build cmake; } >cmake.log 2>&1 || {
  cat cmake.log
  exit 1
}
echo "CMake, $(./cmake/from_c)"
echo "CMake, $(./cmake/from_cxx)"
