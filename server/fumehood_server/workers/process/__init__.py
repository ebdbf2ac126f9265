"""One sandboxed process that runs calls, from its start to its reaping."""
