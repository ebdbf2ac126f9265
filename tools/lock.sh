#!/usr/bin/env bash
# Writes constraints/*.txt anew from what the pyproject files ask for, in an environment of its own.
# One line a package, `name==version`: no index, no host, so that they hold wherever packages come from.
set -euo pipefail
cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"${PYTHON:-python3.11}" -m venv "$work/env"
pip() { "$work/env/bin/python" -m pip --disable-pip-version-check "$@"; }
added() { # What is installed now and not in the list given.
    pip freeze --all --exclude-editable | sort -f | grep -vxFf "$1"
}
export LC_ALL=C

pip install --quiet --upgrade pip
pip freeze --all >"$work/before.txt"
pip install --quiet -e evidence -e protos -e plugin_sdk -e 'sandbox[bundled]' -e 'server[grammars,mcp,orchestration,postgresql,telemetry]'
{
    echo "# What the four distributions run on. Written by tools/lock.sh."
    added "$work/before.txt"
} >"$work/runtime.txt"
pip install --quiet --group dev --group bench -c "$work/runtime.txt"
{
    echo "# What set-up, the checks, the tests and the benchmark need besides. Written by tools/lock.sh."
    added "$work/runtime.txt"
} >"$work/dev.txt"
pip freeze --all >"$work/before.txt"
pip install --quiet --group toolchains
{
    echo "# Node and Go as wheels, for machines that have none. Written by tools/lock.sh."
    added "$work/before.txt"
} >"$work/toolchains.txt"
# Apart from the others: they are installed into folders that only plugins see.
apart() { # FILE, TITLE, PACKAGE…: an environment of their own.
    "${PYTHON:-python3.11}" -m venv "$work/$1"
    "$work/$1/bin/python" -m pip --disable-pip-version-check install --quiet "${@:3}"
    {
        echo "# $2 Written by tools/lock.sh."
        "$work/$1/bin/python" -m pip --disable-pip-version-check freeze | sort -f
    } >"$work/$1.txt"
}
list() { sed -n "s/^$1 := //p" Makefile; }
# shellcheck disable=SC2046 # one word a package
apart libraries "The libraries that make test-libraries tries, with what they need." $(list LIBRARIES)
# shellcheck disable=SC2046 # one word a package
apart mcp_servers "The official MCP servers for Python that tests host, with what they need." -c "$work/runtime.txt" $(list MCP_SERVERS)
mkdir -p constraints
mv "$work"/{runtime,dev,toolchains,libraries,mcp_servers}.txt constraints/
