#!/usr/bin/env bash
# Install the system tools that some tests run for real: ping, iperf3, ip, tc and Open MPI.
# Needs root and apt-get. Where that is not to be had it says so: those tests then skip, each with
# its reason.
set -euo pipefail

tools=(ping:iputils-ping iperf3:iperf3 ip:iproute2 tc:iproute2 mpirun:openmpi-bin)
packages=()
for entry in "${tools[@]}"; do
  command -v "${entry%%:*}" >/dev/null || packages+=("${entry#*:}")
done
if [ "${#packages[@]}" -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "$0: not root, or no apt-get; tests that need ${packages[*]} will skip" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -q && apt-get install -q -y --no-install-recommends "${packages[@]}"; } >&2; then
  echo "$0: apt-get failed; tests that need ${packages[*]} will skip" >&2
fi
