"""Promises of the repository itself."""
