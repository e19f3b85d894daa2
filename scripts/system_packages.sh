#!/usr/bin/env bash
# Install the system tools that some tests run for real: ping, iperf3, ip, tc, Open MPI, and clang,
# which compiles for GPUs that nvcc no longer knows.
# Needs root and apt-get. Where that is not to be had, or a release does not have a package, it says
# so: those tests then skip, each with its reason.
set -euo pipefail

tools=(
  ping:iputils-ping iperf3:iperf3 ip:iproute2 tc:iproute2 mpirun:openmpi-bin clang++-19:clang-19
)
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
install() {
  apt-get install -q -y --no-install-recommends "$@" >&2
}
apt-get update -q >&2 || true # A list that is there may do; what is missing is told below.
if ! install "${packages[@]}"; then
  # One that cannot be had must not keep the others out.
  for package in "${packages[@]}"; do
    install "$package" || echo "$0: apt-get failed; tests that need $package will skip" >&2
  done
fi
