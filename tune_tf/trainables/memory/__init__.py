"""Memory of trials: out-of-memory retries, process recycling and elastic resources."""
