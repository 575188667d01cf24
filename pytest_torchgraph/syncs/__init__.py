"""Host syncs, where Python waits for the device, and transfers, copies between devices.

`detect.recorded_events` finds them in the calls that a mechanism recorded, and
`detect.compiled_events` in graphs and at graph breaks. Both let `op_calls` classify each call, and
return the `Sync` and `Transfer` of `model`. `detect.on_method_call` observes methods while a step
runs.
"""
