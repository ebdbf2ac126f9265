"""What a worker uses, what bounds it, and which limit ended what."""
