#!/usr/bin/env bash
# Install with the test extras into an environment of its own; lint, types, all tests.
# With --quick: an editable environment, no types and native formats, and no tests that are marked
# `long`. Other arguments go to pytest. Tests that take minutes are run by scripts/test_slow.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/python_environment.sh

# Tests start hundreds of processes, which would compile the modules of this checkout each time.
unset PYTHONDONTWRITEBYTECODE
# NumPy's BLAS starts a thread for each core in every one of them, which spins and has nothing to do.
export OPENBLAS_NUM_THREADS=1

if [ "${1-}" = --quick ]; then
  shift
  make_environment .venv-dev "-e .[docs,test]"
  export PATH="$PWD/.venv-dev/bin:$PATH"
  ruff check .
  ruff format --check .
  lint-imports
  exec pytest -q -n 2 --dist worksteal -m "not slow and not long" "$@"
fi

make_environment .venv-test ".[docs,test]"
export PATH="$PWD/.venv-test/bin:$PATH"

ruff check .
ruff format --check .
find probes scripts synthesizer tests tuccl -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.cpp' -o -name '*.cu' \
  -o -name '*.cuh' | sort |
  xargs clang-format --dry-run --Werror
lint-imports
mypy --num-workers 2
# Workers begin with a third of the tests each, so that few share a fixture, and one that ends sooner
# takes tests of another. Tests wait for compilers, launchers and deadlines for a seventh of the
# time, so three workers keep two cores busy.
pytest -n 3 --dist worksteal -m "not slow" "$@"
