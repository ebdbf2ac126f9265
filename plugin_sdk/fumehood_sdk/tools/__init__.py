"""One tool: what its author declares, and what validates its arguments and writes its results."""
