"""The protocol of Fumehood as generated Python; `fumehood.v1` is its first version."""
