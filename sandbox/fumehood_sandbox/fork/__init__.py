"""A process for each call, forked from a zygote.

`server` runs in the launcher's process, `supervisor` in one of its own outside, `zygote` and its children inside.
"""
