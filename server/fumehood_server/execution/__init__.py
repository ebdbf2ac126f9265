"""One call, in order."""
