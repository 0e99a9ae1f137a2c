"""Input of the training loop: streams, readers, device-resident rows."""
