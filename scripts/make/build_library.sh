#!/bin/sh
# Compiles a library of the runtime with cc alone, for machines without cmake and for the tests.
#   scripts/make/build_library.sh plugin|measure|profiler OUTPUT.so
set -eu
sources=$(dirname "$0")/../../tuccl/runtime
[ "$1" = plugin ] || sources=$sources/$1
# nodelete: see CMakeLists.txt.
exec ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
    -fPIC -fvisibility=hidden -shared -Wl,-z,nodelete -o "$2" "$sources"/*.c -ldl -lm
