"""Load test under attack: hostile callers and plugins of each kind beside one caller that behaves well.

`make soak` runs it. It starts a real sidecar, measures the quiet caller alone, then beside each kind of attack in a
process of its own, then beside all of them, and after them the memory that the sidecar is left with.
"""
