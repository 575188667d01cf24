"""Known device types."""

KNOWN = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "npu", "xla", "meta")
"""Device types of torch and its common backends, without indices."""

FIXTURE = "graph_device"

MARKER = "torchgraph_devices"

DESCRIPTION = (
    f"{MARKER}(*names): {FIXTURE} gives the test only these of the selected devices; if none of "
    "them is selected, the test is skipped"
)
"""Text that `pytest --markers` prints."""

DEFAULT = ("cpu", "cuda")
"""Devices if neither the command line nor the ini file names any."""
