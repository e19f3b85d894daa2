#!/usr/bin/env bash
# Install TuCCL into its own environment and tune two 8-GPU A100 machines on the simulated backend.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/python_environment.sh

make_environment .venv .
exec .venv/bin/tuccl init --topology probes/machines/a100-8gpu-8nic.xml --nodes 2 \
  --workspace quickstart-workspace "$@"
