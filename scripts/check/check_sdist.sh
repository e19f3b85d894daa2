#!/usr/bin/env bash
# Check the source distribution: that it is whole, and makes a wheel that works.
#   scripts/check/check_sdist.sh [OUTPUT_FOLDER]
# An sdist is made of this checkout, which git has to know all files of, and compared with them. A
# wheel is made of the sdist alone, without CUDA code, and installed in a new environment, where it
# tunes and ships a small machine. The command also runs by pipx and uvx, with one name for package
# and command. The sdist stays in OUTPUT_FOLDER, if that is named. Packages come from pip's index.
# Exit code 0: all went well.
set -euo pipefail

if [ $# -gt 1 ]; then
  sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
sources=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
output=${1:-$work/output}
mkdir -p "$output"
output=$(realpath "$output")

"${PYTHON:-python3}" -m venv "$work/tools"
"$work/tools/bin/pip" install -q build pipx uv
"$work/tools/bin/python" -m build --sdist --outdir "$work/sdist" "$sources" > "$work/sdist.log" 2>&1 ||
  { cat "$work/sdist.log" >&2; exit 1; }
sdist=$(ls "$work"/sdist/tuccl-*.tar.gz)

# All that git knows but .github is in it, and nothing else but the metadata.
git -C "$sources" ls-files | grep -v '^\.github/' | sort > "$work/known"
tar -tzf "$sdist" | sed 's,^[^/]*/,,' | grep -v -e '^PKG-INFO$' -e '/$' | sort > "$work/packed"
diff "$work/known" "$work/packed" >&2 || { echo "check_sdist.sh: the sdist differs from the files of git" >&2; exit 1; }
echo "$(basename "$sdist"): $(wc -l < "$work/packed") files, all that git knows"

cd "$work" # Nothing of the checkout can be imported from here.
"$work/tools/bin/pip" wheel -q --no-deps -w "$work/wheel" "$sdist" \
  -C cmake.define.TUCCL_BUILD_EXECUTOR=OFF -C cmake.define.TUCCL_BUILD_P2P=OFF
wheel=$(ls "$work"/wheel/tuccl-*.whl)
echo "$(basename "$wheel"): made of the sdist"

"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" install -q "$wheel"
small=(--topology shipped:h200-4gpu --operations all_gather --min-size 64K --max-size 64K)
"$work/venv/bin/tuccl" init "${small[@]}" --workspace w > init.txt
"$work/venv/bin/tuccl" ship shipped --workspace w > ship.txt
tail -n 1 init.txt

version=$("$work/venv/bin/tuccl" --version)
export PIPX_HOME=$work/pipx PIPX_DEFAULT_PYTHON="$work/tools/bin/python" UV_CACHE_DIR=$work/uv
for started in "pipx run --spec $wheel tuccl" "uvx --python $work/tools/bin/python --from $wheel tuccl"; do
  # shellcheck disable=SC2086 # Words of a command.
  found=$(PATH="$work/tools/bin:$PATH" $started --version)
  [ "$found" = "$version" ] || { echo "check_sdist.sh: $started says $found, not $version" >&2; exit 1; }
  echo "${started%% *}: $found"
done
cp "$sdist" "$output"
