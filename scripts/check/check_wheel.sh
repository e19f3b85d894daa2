#!/usr/bin/env bash
# Check a wheel of build_wheel.sh on a machine without compilers.
#   scripts/check/check_wheel.sh WHEEL
# In a root folder with Debian 12 and its Python alone, which debootstrap makes once, the wheel is
# installed, the job of scripts/quickstart.sh runs, its table is shipped, and the libraries are
# loaded with all their symbols, also with glibc 2.31 in the older root of build_wheel.sh. To be run
# as root.
#   TUCCL_BARE_ROOT     folder of the root; $XDG_CACHE_HOME/tuccl-bare-root if not set
#   TUCCL_WHEEL_ROOT    the root of build_wheel.sh; left out if it is not there
#   TUCCL_WHEEL_MIRROR  Debian's mirror; debootstrap's own if not set
# Exit code 0: all went well.
set -euo pipefail

if [ $# -ne 1 ] || [ ! -f "${1-}" ]; then
  sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
if [ -z "${TUCCL_CHECK_MOUNTS-}" ]; then
  TUCCL_CHECK_MOUNTS=own exec unshare --mount bash "${BASH_SOURCE[0]}" "$(realpath "$1")"
fi

wheel=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}
root=${TUCCL_BARE_ROOT:-$cache/tuccl-bare-root}
older=${TUCCL_WHEEL_ROOT:-$cache/tuccl-wheel-root}
sources=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ ! -e "$root/complete" ]; then
  rm -rf "$root"
  mkdir -p "$root"
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" \
    ${TUCCL_WHEEL_MIRROR:+"$TUCCL_WHEEL_MIRROR"} >&2
  touch "$root/complete"
fi
for program in cc gcc g++ clang nvcc cmake ninja make; do
  [ -z "$(find "$root"/usr/bin "$root"/usr/local/bin "$root"/opt -name "$program")" ] || {
    echo "check_wheel.sh: $root has $program; remove it and run this again" >&2
    exit 2
  }
done

# What the wheel needs, for the Python of the root.
"${PYTHON:-python3}" -m pip download -q -d "$work/wheels" --only-binary :all: \
  --python-version 3.11 --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
  --platform manylinux2014_x86_64 --platform any "$wheel"

mount --make-rprivate /

cp "$sources/probes/machines/a100-8gpu-8nic.xml" "$work/machine.xml"

cat > "$work/load.py" << 'PYTHON'
"""Load the libraries with all their symbols, without what is installed beside them."""
import ctypes, os, sys
for path in sys.argv[1:]:
    library = ctypes.CDLL(path, os.RTLD_NOW)
    if "tuner" in path:
        assert library.ncclTunerPlugin_v5 and library.ncclTunerPlugin_v4, path
    print("loads:", os.path.basename(path))
PYTHON

cat > "$work/check.sh" << 'SHELL'
set -eu
python3 -m venv /wheel-check/venv
/wheel-check/venv/bin/pip install -q --no-index --find-links /wheel-check/wheels tuccl
cd /wheel-check
/wheel-check/venv/bin/tuccl init --topology machine.xml --nodes 2 --shapes whole --workspace w > init.txt
tail -n 3 init.txt
/wheel-check/venv/bin/tuccl ship shipped --workspace w > ship.txt
python3 load.py /wheel-check/shipped/*.so /wheel-check/venv/lib/python3*/site-packages/tuccl/runtime/libnccl-profiler-tuccl.so /wheel-check/venv/lib/python3*/site-packages/tuccl/runtime/built/*/*.so
SHELL
# The wheel is installed, tunes, ships and loads there, as if the root had no more.
rm -rf "$root/wheel-check"
mkdir -p "$root/wheel-check"
mount --bind "$work" "$root/wheel-check"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 sh /wheel-check/check.sh

if [ -x "$older/usr/bin/gcc" ]; then
  mkdir -p "$older/wheel-check"
  mount --bind "$work" "$older/wheel-check"
  cat > "$work/load.c" << 'C'
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **paths) {
    for (int i = 1; i < count; i++)
        if (dlopen(paths[i], RTLD_NOW) == NULL)
            return fprintf(stderr, "%s\n", dlerror()), 1;
        else
            printf("loads with the glibc of the build: %s\n", paths[i]);
    return 0;
}
C
  chroot "$older" /bin/sh -c 'cd /wheel-check; gcc -o load load.c -ldl; exec ./load /wheel-check/shipped/*.so /wheel-check/venv/lib/python3*/site-packages/tuccl/runtime/libnccl-profiler-tuccl.so /wheel-check/venv/lib/python3*/site-packages/tuccl/runtime/built/*/*.so'
fi
du -h "$wheel"
