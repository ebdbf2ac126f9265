"""Serves calls over a pair of pipes, inside a plugin's process."""
