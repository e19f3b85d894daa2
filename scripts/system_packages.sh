#!/usr/bin/env bash
# Install the system tools that some tests run for real: ping, iperf3, ip, tc, Open MPI, shellcheck,
# busybox, and clang, which compiles for GPUs that nvcc no longer knows.
# Needs root and apt-get. Where that is not to be had, or a release does not have a package, it says
# so: those tests then skip, each with its reason.
set -euo pipefail

tools=(ping:iputils-ping iperf3:iperf3 ip:iproute2 tc:iproute2 mpirun:openmpi-bin
       shellcheck:shellcheck busybox:busybox)
clangs=(19 18 17 16 20 21) # Any of these does; the first that the release has is installed.

has_clang() {
  local version
  for version in "${clangs[@]}"; do
    if command -v "clang++-$version" >/dev/null; then return 0; fi
  done
  return 1
}

packages=()
for entry in "${tools[@]}"; do
  command -v "${entry%%:*}" >/dev/null || packages+=("${entry#*:}")
done
has_clang || packages+=(clang)
if [ "${#packages[@]}" -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "$0: not root, or no apt-get; tests that need ${packages[*]} will skip" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive

install() {
  local version
  if [ "$1" != clang ]; then
    apt-get install -q -y --no-install-recommends "$1" >&2
    return
  fi
  for version in "${clangs[@]}"; do
    if apt-cache show "clang-$version" >/dev/null 2>&1; then
      apt-get install -q -y --no-install-recommends "clang-$version" >&2
      return
    fi
  done
  return 1
}

apt-get update -q >&2 || echo "$0: apt-get update failed; the lists that are there are used" >&2
for package in "${packages[@]}"; do # One by one: what cannot be had does not keep others out.
  install "$package" || echo "$0: cannot install $package; tests that need it will skip" >&2
done
