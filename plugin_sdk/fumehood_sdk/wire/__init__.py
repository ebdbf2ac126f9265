"""The frames between the sidecar and a plugin, as docs/protocol.md describes them.

Written by hand because importing generated code costs a worker more time than the rest of this package together, and a
worker's start is what a caller waits for. The tests hold both directions against the generated code.
"""
