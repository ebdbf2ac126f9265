"""The kernel's and libc's interface: raw calls and the numbers that they take. Imports nothing of ours."""
