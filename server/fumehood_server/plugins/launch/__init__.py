"""Launch configuration of a plugin: its program, mounts and environment."""
