"""Modes: the ways in which a request is carried out, one a file."""
