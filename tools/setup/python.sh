#!/usr/bin/env bash
# Makes .venv with the newest supported Python of this machine, and brings its pip to the pinned version.
# An interpreter given as PYTHON=... is used as it is. Needs root or sudo only where Debian keeps ensurepip in a package apart.
set -euo pipefail
cd "$(dirname "$0")/../.."

supported() { # A name on PATH may be a shim for a version that is not there, so it is asked.
    "$1" -c 'import sys; sys.exit(not sys.version_info >= (3, 11))' >/dev/null 2>&1
}

find_python() {
    local name
    for name in python3.14 python3.13 python3.12 python3.11 python3; do
        if command -v "$name" >/dev/null && supported "$name"; then
            command -v "$name"
            return
        fi
    done
    echo "setup: no Python >= 3.11 on PATH; install one, or name it: make setup PYTHON=/path/to/python3" >&2
    return 1
}

python="${PYTHON:-$(find_python)}"
if ! supported "$python"; then
    echo "setup: $python is not a Python >= 3.11" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    tools/setup/apt.sh "python$version-venv" || {
        echo "setup: $python cannot make virtual environments; as root: apt-get install python$version-venv" >&2
        exit 1
    }
fi

if ! .venv/bin/python -c 'import pip' >/dev/null 2>&1 || ! supported .venv/bin/python; then
    echo "setup: .venv with $("$python" --version) ($python)"
    "$python" -m venv --clear .venv
fi
# What builds the distributions is pinned too, so they are built without an environment apart.
mapfile -t builders < <(grep -E '^(pip|hatchling|editables)==' constraints/dev.txt)
.venv/bin/python -m pip install --quiet --disable-pip-version-check "${builders[@]}" -c constraints/dev.txt
