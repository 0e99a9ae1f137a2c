"""Core of training: loops, programs, steps, weight updates, checkpoints and seeds."""
