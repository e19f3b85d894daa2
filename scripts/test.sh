#!/usr/bin/env bash
# Install with the test extras into an environment of its own; lint, types, all tests.
# Arguments go to pytest. Tests that take minutes are run by scripts/test_slow.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/python_environment.sh

make_environment .venv-test ".[test]"
export PATH="$PWD/.venv-test/bin:$PATH"

ruff check .
ruff format --check .
find tuccl probes synthesizer tests -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.cpp' -o -name '*.cu' \
  -o -name '*.cuh' | sort |
  xargs clang-format --dry-run --Werror
mypy
pytest -n 2 -m "not slow" "$@"
