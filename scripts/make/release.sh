#!/usr/bin/env bash
# Make the files of a release: sdist, wheel, bill of materials, sums. Nothing is published.
#   scripts/make/release.sh OUTPUT_FOLDER [WHEEL]
# First the checkout is looked at: no change that is not committed; one version in pyproject.toml,
# CITATION.cff, the conda recipe and the Dockerfile; a section of CHANGELOG.md with that version and
# a date. Then check_sdist.sh makes and tries the sdist, and build_wheel.sh the wheel, as root, unless
# a wheel of this commit is named. OUTPUT_FOLDER is new or empty.
#   --look  only look at the checkout
# Exit code 2: something of that is missing; the line says what.
set -euo pipefail

fail() {
  echo "release.sh: $*" >&2
  exit 2
}

look=
if [ "${1-}" = --look ] && [ $# -eq 1 ]; then
  look=1
elif [ $# -lt 1 ] || [ $# -gt 2 ] || [ "${1:0:1}" = - ]; then
  sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

changed=$(git status --porcelain | head -n 1)
[ -z "$changed" ] || fail "the checkout has changes (${changed:3}): commit them first"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
[ -n "$version" ] || fail "pyproject.toml has no line version = \"...\""
says() {
  grep -q -x -F -- "$2" "$1" || fail "$1 has no line '$2', the version of pyproject.toml"
}
says CITATION.cff "version: $version"
says packaging/conda/recipe.yaml "  version: $version"
says packaging/Dockerfile "      org.opencontainers.image.version=\"$version\" \\"
heading=$(grep -m 1 "^## $version\b" CHANGELOG.md || true)
[[ "$heading" =~ ^"## $version, "[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] ||
  fail "CHANGELOG.md has '${heading:-no section of $version}': it needs '## $version, YEAR-MONTH-DAY'"
echo "version $version of $(git rev-parse --short HEAD)"
[ -z "$look" ] || exit 0

# The wheel with the packages that it needs, as pip settles them; NOTICE has what is linked in.
bill_of_materials() {
  local work
  work=$(mktemp -d)
  "${PYTHON:-python3}" -m venv "$work/wheel"
  "$work/wheel/bin/pip" install -q "$wheel"
  "$work/wheel/bin/pip" uninstall -q -y pip setuptools 2> /dev/null
  "${PYTHON:-python3}" -m venv "$work/tool"
  "$work/tool/bin/pip" install -q cyclonedx-bom
  "$work/tool/bin/cyclonedx-py" environment --output-reproducible --pyproject pyproject.toml \
    -o "$output/tuccl-$version.cdx.json" "$work/wheel"
  rm -rf "$work"
}

mkdir -p "$1"
output=$(realpath "$1")
[ -z "$(ls -A "$output")" ] || fail "$output is not empty: name a new folder"
bash scripts/check/check_sdist.sh "$output"
if [ $# -eq 2 ]; then
  cp "$2" "$output"
else
  bash scripts/make/build_wheel.sh "$output"
fi
wheel=$(ls "$output"/tuccl-"$version"-*.whl) || fail "no wheel of version $version"
bill_of_materials
cp CHANGELOG.md NOTICE LICENSE "$output"
(cd "$output" && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
