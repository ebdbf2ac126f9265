"""Reads and validates JSON from callers and plugins by JSON Schema, on the event loop or in a process of its own.

Nothing is imported here: the process imports this package, and what it doesn't need would be memory.
"""
