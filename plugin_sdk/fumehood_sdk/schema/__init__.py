"""JSON Schemas and validators of Python's type hints.

`plain` covers the types that most tools are made of and needs `pydantic_core` alone; `by_pydantic` leaves the others to
pydantic, whose import doubles the start of a worker. The tests hold the first against the second.
"""
