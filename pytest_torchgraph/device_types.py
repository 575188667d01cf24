"""The types of devices that are known here."""

KNOWN = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "npu", "xla", "meta")
"""Those of torch and of its common backends, without indices."""

FIXTURE = "graph_device"

MARKER = "torchgraph_devices"

DESCRIPTION = (
    f"{MARKER}(*names): of the selected devices, {FIXTURE} gives only these to the test; where "
    "none of these is selected, it is skipped"
)
"""What `pytest --markers` prints."""

DEFAULT = ("cpu", "cuda")
"""The devices where neither the command line nor the ini file names any."""
