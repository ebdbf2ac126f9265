"""The journal: what every call did, in order, in a tree whose root is signed. Siblings know it by `model.events`."""

JOURNAL_NAME = "journal.db"
"""The file in the state folder."""
