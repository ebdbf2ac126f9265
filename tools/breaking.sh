#!/usr/bin/env bash
# Fails where the protos break what an earlier commit promised (buf's FILE rules).
# The earlier commit is BREAKING_BASE when given, else the newest version tag behind HEAD, else HEAD's parent. Files of the
# working tree are compared, so a change is seen before it is committed as well. A change that is meant, before there is a
# version to keep faith with, is let through by `breaking.ignore` in protos/buf.yaml, in the commit that makes it.
set -euo pipefail
cd "$(dirname "$0")/.."

base="${BREAKING_BASE:-}"
if [ -z "$base" ]; then
    base="$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || git rev-parse --verify --quiet 'HEAD^' || true)"
fi
if [ -z "$base" ]; then
    echo "breaking: no tag and no parent commit here (a shallow clone?), so there is nothing to compare with"
    exit 0
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
git archive "$base" protos | tar -x -C "$work"
echo "breaking: compared with $(git rev-parse --short "$base")"
tools/npm/node_modules/.bin/buf breaking protos --against "$work/protos"
