#!/usr/bin/env bash
# The tests that take minutes, and property tests with many examples, in the environment of
# scripts/test.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/python_environment.sh

make_environment .venv-test ".[docs,test]"
export PATH="$PWD/.venv-test/bin:$PATH"
# As in scripts/test.sh.
export OPENBLAS_NUM_THREADS=1
pytest -m "slow or hypothesis" --hypothesis-profile thorough "$@"
