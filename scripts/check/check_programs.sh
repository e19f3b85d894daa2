#!/usr/bin/env bash
# Runs compiled programs on the GPUs of this host and compares every byte. Needs nvcc. Without FOLDER
# the expert schedules are compiled first, which takes this project's Python packages;
# scripts/make/write_programs.py does that elsewhere.
#
#   scripts/check/check_programs.sh [FOLDER [cases [seed]] [--ranks=N]]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
programs=${1:-$folder/programs}
[ $# -gt 0 ] || PYTHONPATH="$root" "${PYTHON:-python3}" "$root/scripts/make/write_programs.py" "$programs"
"$root/scripts/make/build_gpu_check.sh" check_programs "$folder/check_programs"
"$folder/check_programs" "$programs" "${@:2}"
