"""Data types and interfaces of tools, plugins, calls and workers, shared by the packages above."""
