"""What is mounted into a sandbox and runs there: no module of ours imports it."""
