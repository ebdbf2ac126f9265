"""Hands signed checkpoints to places that the operator names, where this machine can't change them any more."""
