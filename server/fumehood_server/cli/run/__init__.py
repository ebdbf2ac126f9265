"""`fumehood run`: requests, their streams, and what a person or a program sees of them."""
