"""The types of devices that are known here."""

KNOWN = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "npu", "xla", "meta")
"""Those of torch and of its common backends, without indices."""
