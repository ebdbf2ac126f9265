"""What the scenarios share: processes, load, statistics, the report."""
