"""Adds this folder to the import path, for the helper modules of the tests below it."""
