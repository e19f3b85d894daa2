#!/usr/bin/env bash
# Builds the executor's patterns and runs them on the GPUs of this host: every byte compared, then
# times. Needs nvcc; with one GPU --ranks=2, and no times.
#
#   scripts/check/check_patterns.sh [cases] [seed] [--no-times] [--ranks=N]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$root/scripts/make/build_gpu_check.sh" check_patterns "$folder/check_patterns"
"$folder/check_patterns" "$@"
