"""Write torch's trace of this process to a file, as `TORCH_TRACE=DIR` does for a whole process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch._logging._internal as torch_logging
from torch._logging import structured


@contextlib.contextmanager
def traced(path: Path) -> Iterator[None]:
    """Write all records of the trace inside the context to `path`."""
    logger: Any = torch_logging.trace_log
    structured.INTERN_TABLE.clear()  # names of files are written once in a process
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(torch_logging.TorchLogsFormatter(trace=True))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()
