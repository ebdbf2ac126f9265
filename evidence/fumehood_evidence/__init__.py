"""Verifies what a Fumehood sidecar recorded, offline: Merkle proofs, signed checkpoints, bundles of evidence."""
