#!/bin/sh
# Generates the Go code of the protocol into gen/. Needs Go, and protoc as Python's grpcio-tools bring it (`make setup`).
# With --check it generates elsewhere and fails where the committed code differs.
#
# All files are of one Go package, so they import none of each other: they lie in whatever module they are generated into.
# The generators are the `tool`s of go.mod, so their versions are pinned.
set -eu
cd "$(dirname "$0")"

PROTOS=../../../protos
FILES="error content tool tool_service" # plugin_service.proto is for operators, plugin.proto for plugins

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

generate() { # into $1
    GOBIN="$work" go install tool
    paths=""
    for file in $FILES; do
        paths="$paths fumehood/v1/$file.proto"
    done
    mkdir -p "$1"
    # shellcheck disable=SC2086 # words are wanted
    python3 -m grpc_tools.protoc -I "$PROTOS" \
        --plugin=protoc-gen-go="$work/protoc-gen-go" --plugin=protoc-gen-go-grpc="$work/protoc-gen-go-grpc" \
        --go_out="$1" --go_opt=paths=source_relative --go-grpc_out="$1" --go-grpc_opt=paths=source_relative $paths
}

if [ "${1:-}" = --check ]; then
    generate "$work/gen"
    if ! diff -r --brief gen "$work/gen"; then
        echo "gen/ is not what the protos generate; run: examples/clients/go/generate.sh" >&2
        exit 1
    fi
    exit 0
fi
rm -rf gen
generate gen
