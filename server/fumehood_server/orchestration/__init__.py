"""Runs of models with the sidecar's tools: a `SystemRequest` in, a `SystemResponse` out."""
