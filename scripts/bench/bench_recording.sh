#!/bin/sh
# Cost of recording one call. Needs cc.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

scripts/make/build_profiler.sh "$work/profiler.so"
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE \
    -Ituccl/runtime/profiler -o "$work/bench_recording" scripts/bench/bench_recording.c -ldl
mkdir "$work/recording"
for abi in 4 5; do
    for sizes in 1 10 1000; do
        TUCCL_RECORD=$work/recording "$work/bench_recording" "$work/profiler.so" $abi $sizes
    done
done
