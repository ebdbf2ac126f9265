"""The sandbox library, against the real kernel."""
