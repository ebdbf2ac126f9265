"""One load client a contender, each run in a process of its own."""
