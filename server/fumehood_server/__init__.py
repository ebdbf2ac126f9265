"""The Fumehood sidecar."""
