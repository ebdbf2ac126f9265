"""What is measured, one scenario a file. Each takes an effort and a scratch folder and returns a report."""
