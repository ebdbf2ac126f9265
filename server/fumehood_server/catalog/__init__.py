"""Which tools there are: configuration, manifests, definitions, digests, availability."""
