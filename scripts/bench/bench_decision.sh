#!/bin/sh
# Cost of the interposer's decision with tables of 20 and of 10,000 ranges. Needs cc and c++.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo 'int ncclAllReduce(void) { return 0; }' >"$work/nccl.c"
${CC:-cc} -shared -fPIC -o "$work/libnccl.so.2" "$work/nccl.c"
for file in bundle bundle_file crc32 machine phased program program_rehearsal program_section staged; do
    ${CC:-cc} -std=c11 -O2 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -Ituccl/runtime \
        -c -o "$work/$file.o" "tuccl/runtime/$file.c"
done
sources=$(sed -n '/(executor_host_sources/,/)/s|.*{executor_folder}/\([a-z_0-9]*\.cc\).*|tuccl/runtime/executor/\1|p' \
    tuccl/runtime/executor/sources.cmake)
# shellcheck disable=SC2086  # A list of files.
${CXX:-c++} -std=c++17 -O2 -Wall -Wextra -Werror -Ituccl/runtime -Ituccl/runtime/executor \
    -o "$work/bench_decision" scripts/bench/bench_decision.cc $sources "$work"/*.o \
    "$work/libnccl.so.2" -lpthread -ldl
for ranges in 20 10000; do
    echo "$ranges ranges"
    LD_LIBRARY_PATH="$work" "$work/bench_decision" "$ranges"
done
