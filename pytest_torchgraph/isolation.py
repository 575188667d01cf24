"""Isolation of one test: it begins with a fresh compiler, and its settings end with it.

    begin   set the worker's own cache directories, under pytest-xdist
            note the settings and the counters
            clear the compile context, reset Dynamo, clear the counters
    test    compiles, and assigns whatever it likes
    end     put settings, counters and cache directories back

A fixture of the plugin does this around tests that use graphs, unless it is switched off.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton"}
"""The environment variables that name a cache directory of compiled code.

Each with the directory that it stands for where it is not set, relative to inductor's.
"""


@contextlib.contextmanager
def isolated(worker: str = "", *, fresh: bool = True) -> Iterator[None]:
    """Reset the compiler, and put its settings back afterwards.

    Inside, Dynamo has compiled nothing, and its counters are empty. Afterwards the configs of
    Dynamo, inductor, functorch, torch.fx and torch.compiler, the stance, torch's logs, the
    precision of float32 matmuls and the counters are what they were, whatever was assigned
    meanwhile.

    Args:
        worker: the name of the pytest-xdist worker, which gets its own cache directories of
            compiled code then; "" (the default) for none.
        fresh: whether it begins with a fresh compiler; without, settings and counters alone are
            put back.
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
    """Let `CACHES` name directories of this worker's own, below those of the user."""
    if not worker:
        yield
        return
    from . import torch_private

    with variables_restored(CACHES):
        common = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or torch_private.get("cache_dir")()
        for name, relative in CACHES.items():
            directory = Path(os.environ.get(name) or Path(common, relative))
            os.environ[name] = str(directory / worker)
        yield


@contextlib.contextmanager
def variables_restored(names: Iterable[str]) -> Iterator[None]:
    """Put variables of the environment back afterwards, and no others.

    `unittest.mock.patch.dict` empties `os.environ` and fills it with all of its former values, and
    would undo what pytest and the test's fixtures set meanwhile.
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
