"""Memory of trials: retries after OOM, process recycling, elastic resources."""
