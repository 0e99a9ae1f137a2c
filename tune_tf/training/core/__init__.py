"""The training loop: programs, steps, updates, checkpoints, seeds."""
