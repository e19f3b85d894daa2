#!/usr/bin/env bash
# Times large all_gathers by copy engines and by kernels against NCCL's. Needs nvcc and two GPUs.
#
#   scripts/bench_copy_engines.sh libnccl.so.2 [ranks] [repeats]
set -euo pipefail
scripts=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
nvcc -std=c++17 -O3 -arch="${TUCCL_CUDA_ARCHITECTURE:-native}" -o "$folder/bench_copy_engines" \
    "$scripts/bench_copy_engines.cu" -ldl -lpthread
# Stock NCCL, without NVLink multicast.
NCCL_NVLS_ENABLE=0 "$folder/bench_copy_engines" "$@"
