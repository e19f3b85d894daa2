#!/bin/sh
# Compiles the library that times NCCL with cc alone, for machines without cmake and for the tests.
#   scripts/make/build_measure.sh OUTPUT.so
set -eu
sources=$(dirname "$0")/../../tuccl/runtime/measure
exec ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
    -fPIC -fvisibility=hidden -shared -o "$1" "$sources"/*.c -ldl
