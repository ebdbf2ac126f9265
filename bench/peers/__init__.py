"""What the figures are held against."""
