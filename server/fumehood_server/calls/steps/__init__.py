"""The steps of one call, a file each."""
