"""`restart()`: a second compilation with the caches of the first, here or in new processes."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import torch

from .. import torch_private
from ..checks.warm_start import assert_warm
from ..errors import CaptureError
from ..isolation import CACHES, variables_restored
from ..mechanisms.step import Invocation, Step, compile_marks_restored, exclusive, preserve_state
from ..mechanisms.torch_compile import Inductor
from ..torch_release import need_torch
from ..watching.cache_lookups import CacheLookup, lookups_of
from ..watching.observe import HUB, EventRecorder
from ..watching.record import WatchRecord, record_of
from .watch import arguments_of


class Half(NamedTuple):
    """One half of a restart.

    Attributes:
        seconds: duration of the calls, including compilation.
        record: torch.compile's record.
    """

    seconds: float
    record: WatchRecord


class Restart:
    """The result of `restart`: what the second start found in the caches that the first one left.

    Attributes:
        cold, warm: seconds of the first and the second start. Timings prove nothing.
        lookups: every lookup of the second start, in order.
    """

    def __init__(self, cold: Half, warm: Half) -> None:
        self.cold = cold.seconds
        self.warm = warm.seconds
        self.lookups: tuple[CacheLookup, ...] = lookups_of(
            warm.record.compiled, cold.record.compiled
        )
        self._cold, self._warm = cold.record, warm.record

    def assert_warm(self, max_misses: int = 0, allow: str | Sequence[str] = ()) -> None:
        """Assert that the second start took every graph from torch.compile's caches.

        Args:
            max_misses: maximum number of misses. A bypass is a miss.
            allow: regular expressions, or literal parts, for tolerated misses, searched in their
                `reason`.

        Raises:
            AssertionError: with each miss, its reason and line; if torch looked nothing up, with
                the cause; or if the first start was warm already.
        """
        __tracebackhide__ = True
        assert_warm(self._cold, self._warm, self.lookups, max_misses, allow)

    def __repr__(self) -> str:
        states = [lookup.state for lookup in self.lookups]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"<Restart: {counts or 'no lookup'}; {self.cold:.1f} s, then {self.warm:.1f} s>"


def restart(
    target: Callable[..., Any],
    /,
    *calls: Any,
    via: Any = "inductor",
    backward: bool | None = None,
    loss_fn: Callable[[Any], torch.Tensor] | None = None,
    process: bool = False,
) -> Restart:
    """Compile a target with an empty cache directory, then again with what is in it.

    The directory is temporary and deleted at the end. Before each half, Dynamo and inductor's
    in-memory caches are reset. After each call, the RNG state, `.grad`, buffers and tensor
    arguments are restored.

    Args:
        target: a function or module. A compiled target keeps its own options.
        *calls: the arguments of each call, at least one call; see `steady`.
        via: "inductor", or `Inductor(...)` with the options of `torch.compile`.
        backward, loss_fn: for each call, see `capture`.
        process: run each half in a new Python process. Target and arguments are pickled. Inductor's
            and AOTAutograd's settings that are numbers, strings or flags are copied from this
            process. This process cannot be the first one: parts of a cache key depend on the
            imported modules.

    Raises:
        TypeError: see `steady`.
        ValueError: if `via` is anything else.
        CaptureError: see `capture`; also if the target cannot be pickled, with the attribute's
            path.
    """
    need_torch()
    mechanism = Inductor() if via == "inductor" else via
    if not isinstance(mechanism, Inductor):
        raise ValueError(f"via={via!r}: only 'inductor' has caches, or Inductor(...) with options")
    if not callable(target):
        raise TypeError(f"the target must be callable, not {type(target).__name__}")
    if not calls:
        raise TypeError("restart(target, *calls) needs the arguments of at least one call")
    arguments = [arguments_of(call, number) for number, call in enumerate(calls)]
    first = CallArguments(target, arguments, mechanism, loss_fn, backward)
    with exclusive(resets=True), HUB.paused(), own_cache_directory():
        if process:
            written = write_calls(first)
            return Restart(run_in_process(written), run_in_process(written))
        cold = first.run()
        torch_private.clear_memory_caches()
        return Restart(cold, first.run())


class CallArguments(NamedTuple):
    """The calls of a target, executed once per half.

    Attributes:
        target, arguments, loss_fn, backward: arguments of `restart`.
        mechanism: options of `torch.compile`.
    """

    target: Callable[..., Any]
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]]
    mechanism: Inductor
    loss_fn: Callable[[Any], torch.Tensor] | None
    backward: bool | None

    def run(self) -> Half:
        """Reset Dynamo, compile the target and execute the calls."""
        args, kwargs = self.arguments[0]
        # torch.compile marks the module itself, so the marks are restored around it.
        with compile_marks_restored(self._invocation(self.target, args, kwargs).named):
            return self._run()

    def _invocation(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Invocation:
        return Invocation(target, args, kwargs, self.loss_fn, self.backward)

    def _run(self) -> Half:
        target, options = self.target, self.mechanism
        if not torch_private.is_compiled(target):
            target = torch.compile(
                target,
                dynamic=options.dynamic,
                fullgraph=options.fullgraph,
                mode=options.mode,
                options=options.options,
            )
        recorder = EventRecorder()
        with torch_private.fresh_dynamo(), HUB.recording(recorder):
            begin = time.perf_counter()
            for args, kwargs in self.arguments:
                invocation = self._invocation(target, args, kwargs)
                with preserve_state(invocation.named) as saved:
                    Step(invocation, saved).run()
            seconds = time.perf_counter() - begin
        return Half(seconds, record_of(recorder))


@contextlib.contextmanager
def own_cache_directory() -> Iterator[None]:
    """Give torch.compile an empty cache directory, and delete it afterwards.

    torch's `fresh_cache` does not delete the directory after an exception.
    """
    directory = tempfile.mkdtemp(prefix="torchgraph-restart-")
    torch_private.clear_memory_caches()
    try:
        with variables_restored(CACHES):
            for name, relative in CACHES.items():
                os.environ[name] = str(Path(directory, relative))
            yield
    finally:
        torch_private.clear_memory_caches()
        rmtree(directory, ignore_errors=True)


_CODE = "from pytest_torchgraph.api.warm_start import main; main()"
_IN, _OUT = "calls.pickle", "half.pickle"


def write_calls(calls: CallArguments) -> Path:
    """Write the calls into the restart's cache directory, with the other process's inputs.

    Raises:
        CaptureError: if the calls cannot be pickled, with the path of the attribute.
    """
    written = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "torchgraph")
    written.mkdir()
    try:
        data = pickle.dumps(calls)
    except Exception as error:
        # pickle's own error does not name the attribute.
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
        CaptureError: if the process fails, with the end of its output.
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
    """Run the calls in the directory given on the command line."""
    written = Path(sys.argv[1])
    path, origins, settings, data = pickle.loads(written.joinpath(_IN).read_bytes())
    sys.path[:] = path
    for name, file in origins.items():
        _import(name, file)
    torch_private.put_plain_settings(settings)
    half = pickle.loads(data).run()
    # Code objects and guard values are not sent back: only the lookups are needed.
    record = replace(half.record, runs=Counter(), counters={}, callables=())
    for compiled in record.compiled:
        compiled.sights = ()
    half = half._replace(record=record)
    written.joinpath(_OUT).write_bytes(pickle.dumps(half))


def _modules_in(data: bytes) -> list[str]:
    """Return the user's modules that a pickle names: a test module is not in a package's path."""
    import pickletools

    texts = [str(argument) for _, argument, _ in pickletools.genops(data) if argument is not None]
    names = {text.partition(" ")[0] for text in texts}
    return sorted(name for name in names if name in sys.modules and _file_of(name))


def _file_of(name: str) -> str:
    return str(getattr(sys.modules[name], "__file__", None) or "")


def _import(name: str, file: str) -> None:
    """Import a module by name, or from its file under that name."""
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
        module.__name__ = "__restart__"  # do not run its `if __name__ == "__main__":` block
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _unpicklable(value: Any, path: str, depth: int = 6) -> Iterator[str]:
    """Yield the paths of the innermost values that cannot be pickled."""
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
