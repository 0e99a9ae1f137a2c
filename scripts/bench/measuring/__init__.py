"""What the benchmarks share: turns, ratios, and how they are told."""
