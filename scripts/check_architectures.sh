#!/usr/bin/env bash
# Compiles the CUDA code for the GPUs named, down to machine code, a warning being an error, and
# prints a line for each: nothing is linked and nothing runs.
#
#   scripts/check_architectures.sh [70 80 90 100]
#
# nvcc compiles for what it knows. CUDA 13's no longer knows Volta (sm_70): clang does that one, both
# the GPU's half and the host's, with headers, libdevice and ptxas of CUDA 12, which pip fetches into
# build/cuda-12. TUCCL_CLANG names a clang++ of version 16 or later, TUCCL_CUDA_12 a CUDA 12 that is
# there. Exit code 77: no compiler for one of them, which standard error names; the others are done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/python_environment.sh

architectures=("$@")
[ "$#" -gt 0 ] || architectures=(70 80 90 100)
mapfile -t sources < <(find tuccl/runtime probes/p2p/benchmark -name '*.cu' | LC_ALL=C sort)
includes=(-Ituccl/runtime -Ituccl/runtime/executor -Iprobes/p2p/benchmark)

cannot() {
  echo "$0: $*" >&2
  return 77
}

find_clang() {
  local candidate
  for candidate in ${TUCCL_CLANG:-} clang++ clang++-{21,20,19,18,17,16}; do
    if [ "$("$candidate" -dumpversion 2>/dev/null | cut -d. -f1)" -ge 16 ] 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  cannot "no clang++ of version 16 or later; install clang-19, or set TUCCL_CLANG"
}

# The folder of a CUDA 12: fetched once, put in its place when it is whole.
find_cuda_12() {
  local folder=build/cuda-12 part=build/cuda-12.part.$$ python
  if [ -n "${TUCCL_CUDA_12:-}" ] || [ -d "$folder" ]; then
    echo "${TUCCL_CUDA_12:-$folder}"
    return
  fi
  python=$(find_python) || exit 3
  mkdir -p "$part/include" "$part/nvvm" "$part/bin"
  if ! "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --root-user-action ignore --target "$part/wheels" nvidia-cuda-nvcc-cu12==12.5.82 \
    nvidia-cuda-runtime-cu12==12.5.82 nvidia-cuda-cccl-cu12==12.5.39.post1 >&2; then
    rm -rf "$part"
    cannot "pip could not fetch CUDA 12's headers and ptxas; set TUCCL_CUDA_12 to a CUDA 12" || return
  fi
  local wheel
  for wheel in cuda_runtime cuda_nvcc cuda_cccl; do
    cp -r "$part/wheels/nvidia/$wheel/include/." "$part/include"
  done
  mv "$part/wheels/nvidia/cuda_nvcc/nvvm/libdevice" "$part/nvvm/"
  mv "$part/wheels/nvidia/cuda_nvcc/bin/ptxas" "$part/bin/"
  chmod +x "$part/bin/ptxas"
  rm -r "$part/wheels"
  # clang includes this one of cuRAND's beside CUDA's own; nothing here uses it.
  : >"$part/include/curand_mtgp32_kernel.h"
  mv -T "$part" "$folder" 2>/dev/null || rm -rf "$part" # Another run was faster.
  echo "$folder"
}

# Prints the command that compiles SOURCE to OUTPUT, less these two.
with_nvcc() {
  echo "nvcc -std=c++17 -O3 -arch=sm_$1 -cubin -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror"
}

with_clang() { # clang before 20 does not know __grid_constant__, which only saves a copy.
  echo "$1 -x cuda --cuda-path=$2 --cuda-gpu-arch=sm_$3 -std=c++17 -O3 -Wall -Wextra -Werror" \
    "-Wno-unknown-cuda-version -Wno-unknown-attributes"
}

# check ARCHITECTURE: all files, as many at once as there are cores.
check() {
  local command by clang cuda folder
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' RETURN
  if nvcc --list-gpu-arch 2>/dev/null | grep -qx "compute_$1"; then
    command=$(with_nvcc "$1")
    by="nvcc $(nvcc --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
  elif [ "$1" -ge 75 ]; then
    cannot "sm_$1: nvcc is not there or does not know it" || return
  else
    clang=$(find_clang) || return
    cuda=$(find_cuda_12) || return
    command=$(with_clang "$clang" "$cuda" "$1")
    by="clang $("$clang" -dumpversion), ptxas of CUDA $("$cuda/bin/ptxas" --version |
      sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
    printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -I{} \
      $command "${includes[@]}" --cuda-host-only -fsyntax-only {} || return 1
    command+=" --cuda-device-only -c"
  fi
  printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -I{} sh -c \
    'source=$1; folder=$2; shift 2; exec "$@" "$source" -o "$folder/$(basename "$source").cubin"' \
    sh {} "$folder" $command "${includes[@]}" || return 1
  echo "sm_$1: ${#sources[@]} files, $(cat "$folder"/*.cubin | wc -c) bytes of machine code ($by)"
}

worst=0
for architecture in "${architectures[@]}"; do
  status=0
  check "$architecture" || status=$?
  if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
    echo "$0: sm_$architecture does not compile" >&2
    exit 1
  fi
  [ "$status" -eq 0 ] || worst=$status
done
exit "$worst"
