#!/usr/bin/env bash
# Builds the executor's patterns and runs them on the GPUs of this host: every byte compared, then
# times. Needs nvcc and two GPUs.
#
#   scripts/check_patterns.sh [cases] [seed] [--no-times]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
nvcc -std=c++17 -O3 -arch="${TUCCL_CUDA_ARCHITECTURE:-native}" -o "$folder/check_patterns" \
    "$root/tests/runtime/gpu/check_patterns.cu" \
    "$root/tuccl/runtime/executor/"{patterns.cu,device_comm.cu,nvlink.cc} -ldl
"$folder/check_patterns" "$@"
