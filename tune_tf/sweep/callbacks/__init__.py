"""Tune callbacks of a sweep; :class:`tune_tf.sweep.parts.SweepParts` lists them in order."""
