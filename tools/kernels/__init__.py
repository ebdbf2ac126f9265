"""Boots real kernels under qemu and runs the sandbox's tests, the attacks and `fumehood doctor` in them."""
