"""Saved runs: what every test of a suite compiled and captured, written, read and compared.

- `saving`: the plugin that writes a run (`--torchgraph-save-run=DIR`).
- `stored`: a run as files and as values, read without torch.
- `run_diff`: compares two runs, by cause; `run_texts`: the result, `RunDiff`, and its texts.
- `differences`: the public `diff`, which compares runs and all else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import front_door

if TYPE_CHECKING:
    from .run_diff import diff_runs
    from .run_texts import page_data
    from .saving import install
    from .stored import (
        Repeat,
        RunInfo,
        RunWriter,
        SavedCapture,
        SavedRecord,
        is_run,
        merge_runs,
        read_run,
    )
else:
    __getattr__ = front_door(
        __name__,
        {
            "run_diff": "diff_runs",
            "saving": "install",
            "stored": (
                "Repeat RunInfo RunWriter SavedCapture SavedRecord is_run merge_runs read_run"
            ),
            "run_texts": "page_data",
        },
    )
