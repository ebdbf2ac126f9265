"""The shim of kind `cli`, which runs an existing program for each call."""
