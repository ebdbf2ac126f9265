"""Runs through gRPC, with a real sidecar, real plugins, a real journal and a scripted model."""
