#!/bin/sh
# Compiles the profiler plugin with cc alone, for machines without cmake and for the tests.
#   scripts/make/build_profiler.sh OUTPUT.so
set -eu
sources=$(dirname "$0")/../../tuccl/runtime/profiler
# nodelete: see CMakeLists.txt.
exec ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
    -fPIC -fvisibility=hidden -shared -Wl,-z,nodelete -o "$1" "$sources"/*.c -ldl
