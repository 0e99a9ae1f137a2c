"""Input of the training loop: streams, readers and device-resident rows."""
