#!/usr/bin/env bash
# Tunes the GPUs of this host as two nodes over TCP, ships the table, and holds it against stock NCCL
# in new processes, for as many rounds as there is time for. Needs an even number of GPUs, an
# installed TuCCL and a C compiler. FOLDER is made; it keeps the run, SHIPPED, bench.json, bench.txt.
#
#   scripts/bench_faked_nodes.sh FOLDER [--topology HALF] [--budget 270s] [--to 64M] [--seconds 860]
#
# --topology: a file that describes half of the GPUs (default: the first half is probed).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
topology='' budget=270s to=64M seconds=860
folder=${1:?"name a folder for the results"}
shift
while [ $# -gt 0 ]; do
  value=${2:?"$1 needs a value"}
  case $1 in
    --topology) topology=$(realpath "$value") ;;
    --budget) budget=$value ;;
    --to) to=$value ;;
    --seconds) seconds=$value ;;
    *)
      echo "$0: unknown option $1" >&2
      exit 2
      ;;
  esac
  shift 2
done
if [ -e "$folder" ]; then
  echo "$0: $folder exists; name a new one" >&2
  exit 2
fi
mkdir -p "$folder"
cd "$folder"
if [ -z "$topology" ]; then
  gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)
  topology=half.json
  CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((gpus / 2 - 1))) tuccl probe -o "$topology"
fi
tuccl init --backend nccl --topology "$topology" --nodes 2 --fake-nodes --network-gbps 20 --plain \
  --step 2 --min-size 1K --max-size "$to" --floor 0.97 --budget "$budget"
tuccl ship SHIPPED
"${PYTHON:-python3}" "$root/scripts/bench_nccl.py" --table SHIPPED --no-static --fake-nodes 2 --pin \
  --plain --to "$to" --rounds 1000 --seconds "$seconds" --json bench.json | tee bench.txt
