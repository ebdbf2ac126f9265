"""Makes one tool of a function: declaration, signature, arguments, results."""
