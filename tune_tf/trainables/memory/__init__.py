"""Memory of trials: out-of-memory retries and process recycling."""
