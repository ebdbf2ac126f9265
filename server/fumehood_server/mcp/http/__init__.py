"""Streamable HTTP: an ASGI application in a process of its own, on a listening socket that the sidecar has bound."""
