"""Pools: who gets which worker, and when one is started or ended."""
