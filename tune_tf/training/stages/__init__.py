"""Models split into stages on several devices."""
