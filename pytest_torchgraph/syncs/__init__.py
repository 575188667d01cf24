"""Host syncs, where Python waits for the device, and transfers, copies between devices."""
