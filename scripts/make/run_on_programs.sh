#!/usr/bin/env bash
# Builds a check or bench of tests/runtime/gpu that takes compiled programs, and runs it on the GPUs
# of this host. Needs nvcc. Without FOLDER the expert schedules are compiled first, which takes this
# project's Python packages; scripts/make/write_programs.py does that elsewhere.
#
#   scripts/make/run_on_programs.sh check_programs|bench_overhead [FOLDER [words of the program]]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
programs=${2:-$folder/programs}
[ $# -gt 1 ] || PYTHONPATH="$root" "${PYTHON:-python3}" "$root/scripts/make/write_programs.py" "$programs"
"$root/scripts/make/build_gpu_check.sh" "$1" "$folder/$1"
"$folder/$1" "$programs" "${@:3}"
