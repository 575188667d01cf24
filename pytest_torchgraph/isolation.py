"""A test begins with a fresh compiler, and leaves its settings as it found them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

CACHES = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton"}


@contextlib.contextmanager
def isolated(worker: str = "") -> Iterator[None]:
    """Forget what was compiled, and put back afterwards what can be set about compilation.

    Dynamo's compiled code and counters are fresh inside. Afterwards the configs of Dynamo,
    inductor, functorch and torch.fx, the stance, torch's logs, the precision of float32 matmuls and
    the counters are what they were, whatever was assigned meanwhile.

    Args:
        worker: name of the pytest-xdist worker, whose caches of compiled code are its own then.
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
        torch_private.forget_aborted_compilation()
        torch_private.reset_dynamo()
        torch_private.get("counters").clear()
        yield


@contextlib.contextmanager
def _own_caches(worker: str) -> Iterator[None]:
    if not worker:
        yield
        return
    from . import torch_private

    before = {name: os.environ.get(name) for name in CACHES}
    common = before["TORCHINDUCTOR_CACHE_DIR"] or torch_private.get("cache_dir")()
    for name, below in CACHES.items():
        base = Path(before[name] or Path(common, below))
        os.environ[name] = str(base / worker)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
