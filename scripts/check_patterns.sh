#!/usr/bin/env bash
# Builds the executor's patterns and runs them on the GPUs of this host: every byte compared, then
# times. Needs nvcc and two GPUs.
#
#   scripts/check_patterns.sh [cases] [seed] [--no-times]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
runtime=$root/tuccl/runtime
for source in program program_rehearsal program_section crc32; do
    cc -std=c11 -O2 -D_POSIX_C_SOURCE=200809L -I"$runtime" -c "$runtime/$source.c" \
        -o "$folder/$source.o"
done
nvcc -std=c++17 -O3 -arch="${TUCCL_CUDA_ARCHITECTURE:-native}" -I"$runtime" -I"$runtime/executor" \
    -o "$folder/check_patterns" "$root/tests/runtime/gpu/check_patterns.cu" \
    "$runtime/executor/"{patterns.cu,interpreter.cu,device_comm.cu,nvlink.cc,program_plan.cc} \
    "$folder"/*.o -ldl
"$folder/check_patterns" "$@"
