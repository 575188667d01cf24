"""The second half of a restart in a new Python process.

Only this half runs in another process. A key of torch.compile's caches depends on settings and
modes of its process, so the new process copies the settings and modes of this one.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .. import torch_private
from ..errors import CaptureError
from .warm_start import CallArguments, RestartHalf

_CODE = "from pytest_torchgraph.api.second_process import main; main()"
_IN, _OUT = "calls.pickle", "half.pickle"


class SecondProcess:
    """The calls of a restart, pickled for a new process.

    Args:
        calls: the calls.
        directory: cache directory of the restart.

    Raises:
        CaptureError: if the calls or a setting cannot be pickled, with the setting or argument.
    """

    def __init__(self, calls: CallArguments, directory: Path) -> None:
        self._written = directory / "torchgraph"
        self._written.mkdir()
        data = _pickle(torch_private.assigned_settings(), calls)
        origins = {name: _file_of(name) for name in _modules_in(data)}
        modes = torch_private.switches(), torch.is_inference_mode_enabled()
        self._written.joinpath(_IN).write_bytes(
            pickle.dumps((list(sys.path), origins, modes, data))
        )

    def run(self) -> RestartHalf:
        """Run the calls in a new Python process.

        Raises:
            CaptureError: if the process fails, with the end of its output.
        """
        process = subprocess.run(
            [sys.executable, "-c", _CODE, str(self._written)],
            # For the import of this package, before `main` sets `sys.path`.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            last_lines = "\n".join(process.stderr.strip().splitlines()[-4:])
            raise CaptureError(f"the second process of the restart failed:\n{last_lines}")
        half: RestartHalf = pickle.loads(self._written.joinpath(_OUT).read_bytes())
        return half


def main() -> None:
    """Run the calls in the directory given on the command line."""
    written = Path(sys.argv[1])
    path, origins, modes, data = pickle.loads(written.joinpath(_IN).read_bytes())
    sys.path[:] = path
    # Unpickling the calls imports these modules by name, which may not find a test module.
    for name, file in origins.items():
        _import(name, file)
    settings, calls = pickle.loads(data)
    torch_private.assign_settings(settings)
    # `modes` are the switches, and whether inference mode is on.
    with torch.inference_mode(modes[1]), torch_private.stable_cache_keys():
        torch_private.assign_switches(modes[0])
        half = calls.run()
    # The first process needs only the lookups, so do not send code objects and guard values.
    record = replace(half.record, runs=Counter(), counters={}, callables=())
    for compiled in record.compiled:
        compiled.observations, compiled.code_ref = (), None
    half = half._replace(record=record)
    written.joinpath(_OUT).write_bytes(pickle.dumps(half))


def _pickle(settings: dict[str, dict[str, Any]], calls: CallArguments) -> bytes:
    """Pickle the settings and calls. If this fails, name the setting or argument."""
    try:
        return pickle.dumps((settings, calls))
    except Exception as error:
        # pickle names the class or function, but not the setting or argument that has it.
        values = {f"{name}.{key}": own[key] for name, own in settings.items() for key in own}
        values |= {"target": calls.target, "loss_fn": calls.loss_fn}
        values |= {f"calls[{number}]": call for number, call in enumerate(calls.arguments)}
        where = next((path for path, value in values.items() if not _is_picklable(value)), "a call")
        raise CaptureError(
            f"{where} cannot be pickled for the second process ({error}): define its class and "
            "functions at module level, or use process=False"
        ) from error


def _is_picklable(value: Any) -> bool:
    with contextlib.suppress(Exception):
        pickle.dumps(value)
        return True
    return False


def _modules_in(data: bytes) -> list[str]:
    """Return the user's modules that a pickle names. Test modules may not be on the import path."""
    import pickletools

    # A global is named "module name" in one text, or in two.
    texts = [str(argument) for _, argument, _ in pickletools.genops(data) if argument is not None]
    names = {text.partition(" ")[0] for text in texts}
    return sorted(name for name in names if name in sys.modules and _file_of(name))


def _file_of(name: str) -> str:
    """Return the file of an imported module; "" for a module of the interpreter."""
    return str(getattr(sys.modules[name], "__file__", None) or "")


def _import(name: str, file: str) -> None:
    """Import a module by name, or from its file under that name."""
    import importlib
    import importlib.util

    if name != "__main__":
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
            return
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    if name == "__main__":
        module.__name__ = "__restart__"  # do not run its `if __name__ == "__main__":` block
    sys.modules[name] = module
    spec.loader.exec_module(module)
