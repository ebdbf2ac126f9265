#!/bin/sh
# Generates the Python code of the protocol, with type stubs, beside the protos. Needs the workspace's own Python on PATH.
set -eu
cd "$(dirname "$0")/../protos"
rm -f fumehood/v1/*_pb2.py fumehood/v1/*_pb2.pyi fumehood/v1/*_pb2_grpc.py fumehood/v1/*_pb2_grpc.pyi
python -m grpc_tools.protoc -I . --python_out=. --mypy_out=quiet:. fumehood/v1/*.proto
python -m grpc_tools.protoc -I . --grpc_python_out=. --mypy_grpc_out=quiet:. fumehood/v1/*_service.proto
