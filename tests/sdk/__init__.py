"""The Python SDK: over real pipes, in real processes."""
