"""Inside a trial: devices, strategy, programs, the epoch loop, checkpoints and seeds.

Importing the package is cheap; its modules load TensorFlow.
"""
