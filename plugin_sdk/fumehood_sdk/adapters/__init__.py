"""Makes existing programs into tools."""
