"""Optuna storages: where a study is kept and what a sampler sees of it."""
