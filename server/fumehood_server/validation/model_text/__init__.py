"""Checks of what a model wrote, which the validator process makes: mending, grammars, rules, votes.

Each is a function of a document alone. Libraries that take memory are imported by the one module that needs them, and
that module when the first such document comes.
"""
