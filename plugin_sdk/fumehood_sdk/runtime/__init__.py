"""Serves calls over a pair of pipes: what runs inside a plugin's process."""
