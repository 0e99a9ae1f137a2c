"""Private parts of Ray Tune, each with a fallback."""
