"""Where Python waits for the device, and where tensors move between devices."""
