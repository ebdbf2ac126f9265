"""Nouns: what the sidecar knows of tools, plugins, calls and workers."""
