"""Sweeps in virtual time, on problems whose learning curves are known."""
