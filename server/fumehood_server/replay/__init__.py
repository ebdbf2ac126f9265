"""Replay of recorded calls: from the record alone, or by running their code again where it can have no effects."""
