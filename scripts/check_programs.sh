#!/usr/bin/env bash
# Builds the executor's device side and runs compiled programs on the GPUs of this host: every byte
# compared. Needs nvcc. Without FOLDER the expert schedules are compiled first, which takes this
# project's Python packages; scripts/write_programs.py does that elsewhere.
#
#   scripts/check_programs.sh [FOLDER [cases [seed]] [--ranks=N]]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
programs=${1:-$folder/programs}
[ $# -gt 0 ] || PYTHONPATH="$root" "${PYTHON:-python3}" "$root/scripts/write_programs.py" "$programs"
"$root/scripts/build_gpu_check.sh" check_programs "$folder/check_programs"
"$folder/check_programs" "$programs" "${@:2}"
