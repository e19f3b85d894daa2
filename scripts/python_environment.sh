# Sourced by the other scripts: a virtual environment with a Python that is new enough.

fail() {
  echo "$0: $*" >&2
  exit 3
}

# The first Python of at least 3.11; PYTHON=... names another one.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or later found; set PYTHON=/path/to/python3"
}

# make_environment DIR WHAT: creates DIR if needed and installs WHAT of this checkout into it.
make_environment() {
  local python
  python=$(find_python) || exit 3
  command -v cc >/dev/null || command -v gcc >/dev/null || fail "no C compiler found; install gcc"
  if [ ! -x "$1/bin/python" ]; then
    "$python" -m venv "$1" || fail "cannot create $1; Debian needs the package python3-venv"
  fi
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check "$2" ||
    fail "installing $2 into $1 failed"
}
