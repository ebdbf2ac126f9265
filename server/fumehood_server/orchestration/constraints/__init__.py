"""What an output has to be: JSON, an enumeration, a schema, a grammar, rules, and what a model thinks of it."""
