"""protobuf frames between the sidecar and a plugin, encoded and decoded by hand; docs/protocol.md describes them.

Importing the generated code takes a worker longer than importing the rest of this package
(docs/decisions/sdk-own-wire-codec.md). The tests hold both directions against the generated code.
"""
