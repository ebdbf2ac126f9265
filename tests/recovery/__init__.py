"""Fault test: a sidecar under mixed load is killed at random moments, started again, and held to what it acknowledged.

`make test-kills` runs it; `test_kills` is a short run of it.
"""
