#!/usr/bin/env bash
# Tunes the GPUs of this host as two nodes over TCP, ships the table, and holds it against stock NCCL
# in new processes, for as many rounds as there is time for. Needs an even number of GPUs (those of
# CUDA_VISIBLE_DEVICES, if it is set), `tuccl` of this release in PATH and a C compiler. FOLDER is
# made; it keeps the run, SHIPPED, bench.json and bench.txt.
#
#   scripts/bench_faked_nodes.sh FOLDER [--topology HALF] [--budget 270s] [--to 64M] [--seconds 860]
#   scripts/bench_faked_nodes.sh FOLDER --share-gpus [...]
#
# --topology: a file that describes a node (default: its GPUs are probed).
# --share-gpus: each node has all GPUs, through CUDA's MPS (`nvidia-cuda-mps-control -d`), so that
#   half as many do; else each has half of them.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
fail() {
  echo "$0: $*" >&2
  exit 2
}

topology='' budget=270s to=64M seconds=860 shared=()
case ${1:-} in
  '' | -*) fail "usage: $0 FOLDER [--topology NODE] [--share-gpus] [--budget 270s] [--to 64M] [--seconds 860]" ;;
esac
folder=$1
shift
while [ $# -gt 0 ]; do
  if [ "$1" = --share-gpus ]; then
    shared=(--share-gpus)
    shift
    continue
  fi
  [ $# -gt 1 ] || fail "$1 is unknown, or lacks its value"
  case $1 in
    --topology) topology=$2 ;;
    --budget) budget=$2 ;;
    --to) to=$2 ;;
    --seconds) seconds=$2 ;;
    *) fail "unknown option $1" ;;
  esac
  shift 2
done
[ ! -e "$folder" ] || fail "$folder exists; name a new one"
command -v tuccl >/dev/null || fail "no tuccl in PATH; pip install it first"
node=
if [ -n "$topology" ]; then
  [ -r "$topology" ] || fail "cannot read --topology $topology"
  topology=$(realpath "$topology")
else
  command -v nvidia-smi >/dev/null || fail "no nvidia-smi, so no GPUs to probe; give --topology"
  visible=${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)}
  IFS=, read -ra gpus <<<"$visible"
  [ "${#gpus[@]}" -gt 0 ] || fail "no GPUs are visible"
  if [ "${#shared[@]}" -eq 0 ]; then
    [ $((${#gpus[@]} % 2)) -eq 0 ] || fail "an odd number of GPUs (${#gpus[@]}) cannot be halved"
    gpus=("${gpus[@]:0:${#gpus[@]}/2}")
  fi
  node=$(IFS=, && echo "${gpus[*]}")
fi

mkdir -p "$folder"
cd "$folder"
if [ -n "$node" ]; then
  topology=node.json
  CUDA_VISIBLE_DEVICES=$node tuccl probe -o "$topology"
fi
tuccl init --backend nccl --topology "$topology" --nodes 2 --fake-nodes ${shared[@]+"${shared[@]}"} \
  --network-gbps 20 --plain --step 2 --min-size 1K --max-size "$to" --floor 0.97 --budget "$budget"
tuccl ship SHIPPED
"${PYTHON:-python3}" "$root/scripts/bench_nccl.py" --table SHIPPED --no-static --fake-nodes 2 --pin \
  ${shared[@]+"${shared[@]}"} \
  --turns 8 --launches 1 --plain --to "$to" --rounds 1000 --seconds "$seconds" --json bench.json | tee bench.txt
