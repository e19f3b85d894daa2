#!/usr/bin/env bash
# What interpreting costs on four GPUs: schedules interpreted, by their patterns' kernels, and by
# kernels written by hand. Needs nvcc. Without FOLDER the expert schedules are compiled first, which
# takes this project's Python packages; scripts/write_programs.py does that elsewhere.
#
#   scripts/bench_overhead.sh [FOLDER [--seconds=S]]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
programs=${1:-$folder/programs}
[ $# -gt 0 ] || PYTHONPATH="$root" "${PYTHON:-python3}" "$root/scripts/write_programs.py" "$programs"
"$root/scripts/build_gpu_check.sh" bench_overhead "$folder/bench_overhead"
"$folder/bench_overhead" "$programs" "${@:2}"
