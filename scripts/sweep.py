#!/usr/bin/env python3
"""Run, resume and inspect sweeps: ``python scripts/sweep.py --help``."""

from tune_tf.cli import main

main()
