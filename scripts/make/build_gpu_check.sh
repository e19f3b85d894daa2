#!/usr/bin/env bash
# Builds a check of tests/runtime/gpu with the executor's device side. Needs nvcc.
#
#   scripts/make/build_gpu_check.sh check_patterns|check_programs TARGET
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
runtime=$root/tuccl/runtime
for source in program program_phases program_statements program_steps crc32; do
    cc -std=c11 -O2 -D_POSIX_C_SOURCE=200809L -I"$runtime" -c "$runtime/$source.c" \
        -o "$folder/$source.o"
done
nvcc -std=c++17 -O3 -lineinfo -arch="${TUCCL_CUDA_ARCHITECTURE:-native}" \
    -I"$runtime" -I"$runtime/executor" -o "$2" "$root/tests/runtime/gpu/$1.cu" \
    "$runtime/executor/"{patterns.cu,interpreter.cu,device_comm.cu,device_exchange.cu,moves_launch.cc,nvlink.cc,peer_memory.cc,program_moves.cc,program_plan.cc,secrets.cc,staging_need.cc,stages.cu,statement_plan.cc,sums.cu,uniform_plan.cc} \
    "$folder"/*.o -ldl
