"""Generated from the protos beside it; never edited."""
