"""Engines: what answers for a model."""
