"""The benchmark: every figure is a ratio between two contenders of one run, measured turn by turn."""
