"""From Python's type hints to JSON Schema, and to what checks and writes values by them.

Two ways with one result. `simple` covers the types that most tools are made of and needs nothing but `pydantic_core`;
`full` leaves the rest to pydantic, whose import doubles the start of a worker. The tests hold the first against the
second.
"""
