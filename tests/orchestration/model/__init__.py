"""A real small model end to end, and its recorded answers."""
