#!/usr/bin/env bash
# Builds the executor's device side and runs compiled programs on the GPUs of this host: every byte
# compared, then times. Needs nvcc. Without FOLDER the expert schedules are compiled first, which
# takes this project's Python packages; scripts/write_programs.py does that elsewhere.
#
#   scripts/check_programs.sh [FOLDER [cases [seed [--no-times]]]]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
programs=${1:-$folder/programs}
[ $# -gt 0 ] || PYTHONPATH="$root" "${PYTHON:-python3}" "$root/scripts/write_programs.py" "$programs"
runtime=$root/tuccl/runtime
for source in program program_rehearsal program_section crc32; do
    cc -std=c11 -O2 -D_POSIX_C_SOURCE=200809L -I"$runtime" -c "$runtime/$source.c" \
        -o "$folder/$source.o"
done
nvcc -std=c++17 -O3 -arch="${TUCCL_CUDA_ARCHITECTURE:-native}" -I"$runtime" -I"$runtime/executor" \
    -o "$folder/check_programs" "$root/tests/runtime/gpu/check_programs.cu" \
    "$runtime/executor/"{patterns.cu,interpreter.cu,device_comm.cu,nvlink.cc,program_plan.cc} \
    "$folder"/*.o -ldl
"$folder/check_programs" "$programs" "${@:2}"
