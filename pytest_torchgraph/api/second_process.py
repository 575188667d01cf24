"""The halves of a restart in processes of their own: calls and records as pickles."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .. import torch_private
from ..errors import CaptureError

if TYPE_CHECKING:
    from .warm_start import CallArguments, Half

_CODE = "from pytest_torchgraph.api.second_process import main; main()"
_IN, _OUT = "calls.pickle", "half.pickle"


def write_calls(calls: CallArguments) -> Path:
    """Write the calls into the restart's cache directory, with what the other process needs.

    Raises:
        CaptureError: if they cannot be pickled, with the path of the attribute.
    """
    written = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "torchgraph")
    written.mkdir()
    try:
        data = pickle.dumps(calls)
    except Exception as error:
        where = next(_unpicklable(calls.target, "target"), "")
        for number, call in enumerate(calls.arguments):
            where = where or next(_unpicklable(call, f"calls[{number}]"), "")
        raise CaptureError(
            f"{where or 'the target'} cannot be pickled for the second process "
            f"({type(error).__name__}): define its class and functions at the top of a module, or "
            "use process=False"
        ) from error
    origins = {name: _file_of(name) for name in _modules_in(data)}
    settings = torch_private.plain_settings()
    written.joinpath(_IN).write_bytes(pickle.dumps((list(sys.path), origins, settings, data)))
    return written


def run_in_process(written: Path) -> Half:
    """Run the calls in a new Python process.

    Raises:
        CaptureError: if that fails, with the end of what it wrote.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _CODE, str(written)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        last = "\n".join(ended.stderr.strip().splitlines()[-4:])
        raise CaptureError(f"a process of the restart failed:\n{last}")
    half: Half = pickle.loads(written.joinpath(_OUT).read_bytes())
    return half


def main() -> None:
    """Run the calls of the directory that the command line names."""
    written = Path(sys.argv[1])
    path, origins, settings, data = pickle.loads(written.joinpath(_IN).read_bytes())
    sys.path[:] = path
    for name, file in origins.items():
        _import(name, file)
    torch_private.put_plain_settings(settings)
    half = pickle.loads(data).run()
    # Code objects and what guards saw stay here: the lookups are what is asked for.
    record = replace(half.record, runs=Counter(), counters={}, callables=())
    for compiled in record.compiled:
        compiled.sights = ()
    half = half._replace(record=record)
    written.joinpath(_OUT).write_bytes(pickle.dumps(half))


def _modules_in(data: bytes) -> list[str]:
    """The modules of the user's that a pickle names: a test module is in no package's path."""
    import pickletools

    texts = [str(argument) for _, argument, _ in pickletools.genops(data) if argument is not None]
    names = {text.partition(" ")[0] for text in texts}
    return sorted(name for name in names if name in sys.modules and _file_of(name))


def _file_of(name: str) -> str:
    return str(getattr(sys.modules[name], "__file__", None) or "")


def _import(name: str, file: str) -> None:
    """Import a module by its name, or else from its file under that name."""
    import importlib
    import importlib.util

    if name != "__main__":
        try:
            importlib.import_module(name)
            return
        except ImportError:
            pass
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    if name == "__main__":
        module.__name__ = "__restart__"  # its `if __name__ == "__main__":` is not for this process
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _unpicklable(value: Any, path: str, depth: int = 6) -> Iterator[str]:
    """The paths of the innermost values that cannot be pickled."""
    try:
        pickle.dumps(value)
        return
    except Exception:
        pass
    inner: list[tuple[str, Any]] = []
    if isinstance(value, torch.nn.Module):
        inner += [(f"{path}.{name}", child) for name, child in value.named_children()]
    if isinstance(value, dict):
        inner += [(f"{path}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        inner += [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        inner += [
            (f"{path}.{name}", item)
            for name, item in vars(value).items()
            if name not in ("_modules", "__wrapped__")
        ]
    below = [
        found for where, item in inner if depth for found in _unpicklable(item, where, depth - 1)
    ]
    yield from below or [f"{path} ({type(value).__name__})"]
