"""Isolation of one test: a fresh compiler at its start, and the former settings after its end.

    begin   set the worker's own cache directories, under pytest-xdist
            save the settings and the counters
            clear the compile context, reset Dynamo, clear the counters
    test    compiles, and changes any settings
    end     restore settings, counters and cache directories

A fixture of the plugin does this around tests that use graphs, unless disabled.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton"}
"""Environment variables that name a cache directory of compiled code.

Maps each variable to its default directory, relative to inductor's.
"""


@contextlib.contextmanager
def isolated(worker: str = "", *, fresh: bool = True) -> Iterator[None]:
    """Reset the compiler, and restore its settings afterwards.

    With `fresh`, Dynamo has compiled nothing at the start, and its counters are empty. Afterwards
    the configs of Dynamo, inductor, functorch, torch.fx and torch.compiler, the stance, torch's
    logs, the precision of float32 matmuls and the counters are restored, regardless of assignments
    inside.

    Args:
        worker: name of the pytest-xdist worker, which then gets its own cache directories of
            compiled code; "" (the default) for none.
        fresh: True starts with a fresh compiler; False only restores settings and counters.
    """
    from . import torch_private

    with (
        _own_caches(worker),
        torch_private.counters_restored(),
        torch_private.configs_restored(),
        torch_private.stance_restored(),
        torch_private.logs_restored(),
        torch_private.matmul_precision_restored(),
    ):
        if fresh:
            torch_private.forget_aborted_compilation()
            torch_private.reset_dynamo()
            torch_private.get("counters").clear()
        yield


@contextlib.contextmanager
def _own_caches(worker: str) -> Iterator[None]:
    """Set `CACHES` to directories of this worker, below the user's directories."""
    if not worker:
        yield
        return
    from . import torch_private

    with variables_restored(CACHES):
        cache_root = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or torch_private.get("cache_dir")()
        for name, relative in CACHES.items():
            directory = Path(os.environ.get(name) or Path(cache_root, relative))
            os.environ[name] = str(directory / worker)
        yield


@contextlib.contextmanager
def variables_restored(names: Iterable[str]) -> Iterator[None]:
    """Restore only these environment variables afterwards.

    `unittest.mock.patch.dict` would restore all variables, and undo changes by pytest and by the
    fixtures of the test.
    """
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
