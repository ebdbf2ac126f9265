"""`fumehood run`, against a real sidecar and a scripted model."""
