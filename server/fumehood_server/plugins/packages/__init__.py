"""Packages of plugins: wheels and packed files, read as hostile archives, and unpacked beside the sidecar's state."""
