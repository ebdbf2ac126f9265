"""What the author of a Fumehood plugin imports."""
