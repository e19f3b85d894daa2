#!/usr/bin/env bash
# Build the site of docs/ into build/site, or into DIRECTORY; a dead link or anchor fails.
#   scripts/make/build_site.sh [DIRECTORY]
# Takes the mkdocs of the environment that is active, else one of its own in .venv-docs.
set -euo pipefail
target=$(realpath -m "${1-build/site}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if ! command -v mkdocs >/dev/null; then
  . scripts/python_environment.sh
  make_environment .venv-docs ".[docs]"
  export PATH="$PWD/.venv-docs/bin:$PATH"
fi
# Without the variable mkdocs-material prints a notice on releases of mkdocs to come.
NO_MKDOCS_2_WARNING=1 mkdocs build --strict --site-dir "$target"
echo "$target/index.html"
