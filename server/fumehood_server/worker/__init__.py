"""Plugin processes: the wire, starting, pooling and ending them."""
