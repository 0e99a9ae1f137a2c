"""What tune_tf's parts are measured against, as their users write it."""
