"""What plugins print and log: bounded, rate-limited, scrubbed of secrets."""
