#!/usr/bin/env bash
# Check a wheel of build_wheel.sh on a machine without compilers.
#   scripts/check/check_wheel.sh WHEEL
# In a root folder with Debian 12 and its Python alone, which debootstrap makes once, the wheel is
# installed, the job of scripts/quickstart.sh runs, its table is shipped, and the libraries are
# loaded with all their symbols, also in the older root of build_wheel.sh. The same is done in a root
# with Debian 11 (glibc 2.31) and no more, for which Python 3.11 is compiled once, elsewhere. To be
# run as root.
#   TUCCL_BARE_ROOT     folder of the root; $XDG_CACHE_HOME/tuccl-bare-root if not set
#   TUCCL_OLD_ROOT      folder of the root with Debian 11; $XDG_CACHE_HOME/tuccl-old-root if not set
#   TUCCL_WHEEL_ROOT    the root of build_wheel.sh; left out if it is not there
#   TUCCL_WHEEL_MIRROR  Debian's mirror; debootstrap's own if not set
# Exit code 0: all went well.
set -euo pipefail

if [ $# -ne 1 ] || [ ! -f "${1-}" ]; then
  sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
if [ -z "${TUCCL_CHECK_MOUNTS-}" ]; then
  TUCCL_CHECK_MOUNTS=own exec unshare --mount bash "${BASH_SOURCE[0]}" "$(realpath "$1")"
fi

wheel=$1
cache=${XDG_CACHE_HOME:-$HOME/.cache}
root=${TUCCL_BARE_ROOT:-$cache/tuccl-bare-root}
old=${TUCCL_OLD_ROOT:-$cache/tuccl-old-root}
older=${TUCCL_WHEEL_ROOT:-$cache/tuccl-wheel-root}
sources=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# bare SUITE FOLDER PACKAGES: a root folder with a release of Debian and these packages.
bare() {
  rm -rf "$2"
  mkdir -p "$2"
  debootstrap --variant=minbase --include="$3" "$1" "$2" \
    ${TUCCL_WHEEL_MIRROR:+"$TUCCL_WHEEL_MIRROR"} >&2
}

# compile_python FOLDER: Python 3.11 for Debian 11, from Debian 12's sources, as /opt/python of FOLDER.
compile_python() {
  local maker=$work/maker
  bare bullseye "$maker" gcc,libc6-dev,make,zlib1g-dev,libssl-dev,libffi-dev,libsqlite3-dev,libbz2-dev,liblzma-dev,xz-utils
  # The mirror that debootstrap took, and whose keys the root has.
  sed -n 's/^deb \([^ ]*\) bullseye .*/deb-src \1 bookworm main/p' "$maker/etc/apt/sources.list" \
    > "$maker/etc/apt/sources.list.d/bookworm.list"
  cp /etc/resolv.conf "$maker/etc/resolv.conf"
  cat > "$maker/compile.sh" << 'SHELL'
set -eu
cd /tmp
apt-get update -qq
apt-get source -qq --download-only python3.11
tar xf python3.11_*.orig.tar.*
cd Python-3.11.*
./configure --prefix=/opt/python --without-static-libpython > configure.log
make -j"$(nproc)" > make.log 2>&1
make install > install.log 2>&1
rm -rf /opt/python/lib/python3.11/test
SHELL
  chroot "$maker" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh /compile.sh >&2
  cp -a "$maker/opt/python" "$1/opt/python"
  rm -rf "$maker"
}

if [ ! -e "$root/complete" ]; then
  bare bookworm "$root" python3,python3-venv,ca-certificates
  touch "$root/complete"
fi
if [ ! -e "$old/complete" ]; then
  bare bullseye "$old" ca-certificates,libssl1.1,libffi7,libsqlite3-0,libbz2-1.0,liblzma5,zlib1g
  compile_python "$old"
  touch "$old/complete"
fi
for program in cc gcc g++ clang nvcc cmake ninja make; do
  for each in "$root" "$old"; do
    [ -z "$(find "$each"/usr/bin "$each"/usr/local/bin "$each"/opt -name "$program")" ] || {
      echo "check_wheel.sh: $each has $program; remove it and run this again" >&2
      exit 2
    }
  done
done

# What the wheel needs, for the Python of the root.
"${PYTHON:-python3}" -m pip download -q -d "$work/wheels" --only-binary :all: \
  --python-version 3.11 --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
  --platform manylinux2014_x86_64 --platform any "$wheel"

mount --make-rprivate /

# check_in ROOT PATH: the wheel is installed, tunes, ships and loads there, as if it had no more.
check_in() {
  rm -rf "$1/wheel-check" "$work/venv" "$work/w" "$work/shipped"
  mkdir -p "$1/wheel-check"
  mount --bind "$work" "$1/wheel-check"
  mount -t proc proc "$1/proc"
  mount --bind /dev "$1/dev"
  mount -t tmpfs tmpfs "$1/dev/shm"
  echo "== $(chroot "$1" /bin/sh -c '. /etc/os-release; ldd --version | sed -n "s/.* //;1p" | sed "s|^|$PRETTY_NAME, glibc |"')"
  chroot "$1" /usr/bin/env -i PATH="$2" HOME=/root LC_ALL=C.UTF-8 sh /wheel-check/check.sh
}

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
/wheel-check/venv/bin/tuccl init --topology machine.xml --nodes 2 --workspace w > init.txt
tail -n 3 init.txt
/wheel-check/venv/bin/tuccl ship shipped --workspace w > ship.txt
python3 load.py /wheel-check/shipped/*.so /wheel-check/venv/lib/python3*/site-packages/tuccl/runtime/libnccl-profiler-tuccl.so /wheel-check/venv/lib/python3*/site-packages/tuccl/runtime/built/*/*.so
SHELL
check_in "$old" /opt/python/bin:/usr/bin:/bin
check_in "$root" /usr/bin:/bin

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
