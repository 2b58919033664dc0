#!/usr/bin/env bash
# Makes the virtual environment VENV with the locked packages of REQUIREMENTS and this checkout in it.
# usage: PYTHON=python3.11 scripts/environment.sh VENV REQUIREMENTS
set -euo pipefail
venv=$1
requirements=$2
python=${PYTHON:-python3}

# Installs Debian packages when this is possible without asking; else says which are missing.
need() {
    local what=$1
    shift
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing $* ($what is missing)" >&2
        apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >&2
    elif command -v apt-get >/dev/null; then
        echo "$what is missing; install it with: sudo apt-get install $*" >&2
        exit 2
    elif command -v dnf >/dev/null; then
        echo "$what is missing; install it with: sudo dnf install gcc-c++ python3-devel python3.11" >&2
        exit 2
    else
        echo "$what is missing; install it with this system's package manager and run the command again." >&2
        exit 2
    fi
}

if ! command -v "$python" >/dev/null || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    need "Python 3.11 or newer" python3 python3-venv python3-dev
    python=python3
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "$("$python" --version) is too old; install Python 3.11 or newer, or set PYTHON=/path/to/python3.11." >&2
    exit 2
}
"$python" -c 'import ensurepip, venv' 2>/dev/null || need "Python's venv module" python3-venv
command -v "${CXX:-g++}" >/dev/null || command -v clang++ >/dev/null || need "A C++ compiler" g++
"$python" -c 'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' ||
    need "Python.h" python3-dev

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "installing $(grep -c '==' "$requirements") locked packages of $requirements into $venv" >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
