"""Known device types."""

KNOWN = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "npu", "xla", "meta")
"""Device types of torch and its common backends, without indices."""

FIXTURE = "graph_device"

MARKER = "torchgraph_devices"

DESCRIPTION = (
    f"{MARKER}(*names): of the selected devices, {FIXTURE} gives only these to the test; where "
    "none of these is selected, it is skipped"
)
"""Text that `pytest --markers` prints."""

DEFAULT = ("cpu", "cuda")
"""Devices if neither the command line nor the ini file names any."""
