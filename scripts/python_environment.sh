# Sourced by the other scripts: a virtual environment with a Python that is new enough.

fail() {
  echo "$0: $*" >&2
  exit 3
}

# The first Python of at least 3.11; PYTHON=... names another one. Of a virtual environment it is the
# Python behind it, since the environment may be the one that is made again.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
    if "$candidate" -c 'import sys
if sys.version_info < (3, 11): sys.exit(1)
print(sys._base_executable or sys.executable)' 2>/dev/null; then
      return
    fi
  done
  fail "no Python 3.11 or later found; set PYTHON=/path/to/python3"
}

# Which Python it is, the same for a virtual environment as for the Python that made it.
python_identity() {
  "$1" -I -c 'import sys; print(sys.version, sys.base_prefix)' 2>/dev/null
}

# What pip is about to do, which it does without a word.
installation() {
  local gpus=
  if nvidia-smi -L >/dev/null 2>&1 && command -v "${CUDACXX:-nvcc}" >/dev/null; then
    gpus=", and CUDA code for the GPUs here, which takes minutes"
  fi
  echo "dependencies and TuCCL into $1; compiling its plugin$gpus"
}

# What an installation of WHAT depends on: the Python, and the files that are installed or built. An
# editable installation uses the modules of the checkout itself.
fingerprint() {
  local own=(-type f -not -path '*/__pycache__/*')
  case $2 in "-e "*) own+=(-not -name '*.py') ;; esac
  echo "$2, $(python_identity "$1")"
  { find pyproject.toml CMakeLists.txt cmake README.md LICENSE NOTICE tuccl probes sketches synthesizer \
    lookup_tables "${own[@]}" -print0 2>/dev/null || true; } | sort -z | xargs -0 sha256sum | sha256sum
}

# make_environment DIR WHAT: creates DIR if needed and installs WHAT of this checkout (`.[test]`, or
# `-e .[test]`) into it, unless it was made from the same files. A damaged DIR is removed by hand.
make_environment() {
  local python clear="" now started=$SECONDS stamp=$1/tuccl-stamp
  python=$(find_python) || exit 3
  command -v cc >/dev/null || command -v gcc >/dev/null || fail "no C compiler found; install gcc"
  now=$(fingerprint "$python" "$2")
  if [ -e "$1" ] && [ "$(python_identity "$1/bin/python")" != "$(python_identity "$python")" ]; then
    echo "$1 belongs to another Python than $python: making it again" >&2
    clear=--clear
  elif [ "$(cat "$stamp" 2>/dev/null)" = "$now" ]; then
    return
  fi
  if [ ! -e "$1" ] || [ -n "$clear" ]; then
    echo "creating $1 with $("$python" --version) ..." >&2
    "$python" -m venv $clear "$1" || fail "cannot create $1; Debian needs the package python3-venv"
  fi
  # Without a stamp an interrupted installation is begun again.
  rm -f "$stamp"
  echo "installing $(installation "$1") ..." >&2
  # pip compiles the modules on one core, which takes as long as the rest: all cores do it below.
  local package=("$2")
  case $2 in "-e "*) package=(-e "${2#-e }") ;; esac
  "$1/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "${package[@]}" ||
    fail "installing $2 into $1 failed; if it fails again, remove $1"
  # Fails for modules that are written for other Pythons, which nobody imports. What is rarely or
  # never imported is left out: half of all that there is to compile.
  local rare='/(tests|pip|setuptools|sqlalchemy|mypy|graph_objs)/'
  "$1/bin/python" -m compileall -q -j 0 -x "$rare" "$1/lib" >/dev/null 2>&1 || true
  echo "$now" >"$stamp"
  echo "installed in $((SECONDS - started)) s" >&2
}
