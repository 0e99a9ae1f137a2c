"""Model parallelism: models split into stages on several devices."""
