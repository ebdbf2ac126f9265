#!/bin/sh
# Generates the Python code of the protocol, with type stubs, beside the protos. Needs the workspace's own Python on PATH.
# With --check it generates elsewhere and fails where the committed code differs.
set -eu
cd "$(dirname "$0")/../protos"

# A plugin sees nothing but its own folder, so that one without our SDK brings the protocol along.
copies=../examples/plugins/regex-node/proto/fumehood/v1

generate() { # into $1
    python -m grpc_tools.protoc -I . --python_out="$1" --mypy_out="quiet:$1" fumehood/v1/*.proto
    python -m grpc_tools.protoc -I . --grpc_python_out="$1" --mypy_grpc_out="quiet:$1" fumehood/v1/*_service.proto
}

if [ "${1:-}" = --check ]; then
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    generate "$work"
    if ! diff -r --brief --exclude='*.proto' --exclude=__init__.py --exclude=__pycache__ fumehood/v1 "$work/fumehood/v1"; then
        echo "gen: the generated code is not what the protos generate; run: make gen" >&2
        exit 1
    fi
    for copy in "$copies"/*.proto; do
        if ! cmp "fumehood/v1/${copy##*/}" "$copy"; then
            echo "gen: $copy is not the protocol's own; run: make gen" >&2
            exit 1
        fi
    done
    exit 0
fi
rm -f fumehood/v1/*_pb2.py fumehood/v1/*_pb2.pyi fumehood/v1/*_pb2_grpc.py fumehood/v1/*_pb2_grpc.pyi
generate .
for copy in "$copies"/*.proto; do
    cp "fumehood/v1/${copy##*/}" "$copy"
done
