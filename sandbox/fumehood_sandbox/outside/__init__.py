"""What runs in the launcher's process: checks, bubblewrap's arguments, its start, and the process that comes of it."""
