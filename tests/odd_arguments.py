"""Call every public function and method with odd arguments, in child processes.

A *subject* is a public function, method, constructor or fixture, with arguments that work. The
public names of the package and the public methods of their classes are listed by inspection; a
subject that is new needs a row in `ARGUMENTS` if it has required parameters. Each parameter in turn
is replaced by each value of `ODD`; the others keep their values. An accepted value is fine. So is
an exception that the docstring of the function or of its class names, and `Odd`, the exception of
the odd objects themselves. Everything else is a problem: another exception, the end of the process,
no answer within `SECONDS`.

`python tests/odd_arguments.py SHARD SHARDS` imports torch and captures once, and then forks a child
for each subject. If the child dies, another one continues after the call that killed it. The result
is printed as JSON: the number of calls and the problems.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import math
import os
import re
import signal
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn

import pytest_torchgraph as package

SECONDS = 300
INTERNAL = {
    *("finish_for_rank", "need_all_ops", "record", "map_nodes", "patches"),  # for other rooms
    *("run", "subTest"),  # of unittest
}
MECHANISMS = ("Aot", "CompiledAutograd", "Dispatch", "Dynamo", "Export", "Fx", "Inductor")


class Odd(Exception):
    """What the methods of odd objects raise."""


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise Odd


class Refusing:
    """An object whose methods raise."""

    __repr__ = __str__ = __len__ = __iter__ = __bool__ = __hash__ = __eq__ = _refuse  # type: ignore[assignment]
    __call__ = __getattr__ = __getitem__ = __contains__ = __index__ = __fspath__ = __float__ = (
        _refuse
    )


ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "''": lambda: "",
    "odd text": lambda: "\x00\u202e\ud83d\n::error::[(*\\",
    "nonsense": lambda: "nonsense",
    "bytes": lambda: b"\xff",
    "-1": lambda: -1,
    "0": lambda: 0,
    "True": lambda: True,
    "huge": lambda: 10**30,
    "nan": lambda: math.nan,
    "()": lambda: (),
    "[None]": lambda: [None],
    "{}": lambda: {},
    "{'': nan}": lambda: {"": math.nan},
    "object": object,
    "class": lambda: dict,
    "tensor": lambda: torch.ones(2, 0),
    "function": lambda: _refuse,
    "refusing": Refusing,
}
FEW = ("None", "odd text", "-1", "huge", "()", "{'': nan}", "object", "refusing")
"""For subjects of which each call takes long."""


class Subject(NamedTuple):
    """A callable to test.

    Attributes:
        name: its name.
        call: the callable, bound.
        args, kwargs: arguments that work.
        allowed: names of the exceptions in the docstrings.
        values: names of odd values.
    """

    name: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    allowed: frozenset[str]
    values: tuple[str, ...]


def named(*documented: Any) -> frozenset[str]:
    """Return the exceptions that docstrings name; `see X` includes those of X."""
    names: set[str] = set()
    for thing in documented:
        text = thing if isinstance(thing, str) else inspect.getdoc(thing) or ""
        names.update(re.findall(r"\b[A-Z]\w*Error\b", text))
        for other in re.findall(r"[Ss]ee `(?:pytest_torchgraph\.)?(\w+)`", text):
            if other in package.__all__ and getattr(package, other) is not thing:
                names |= named(getattr(package, other))
    return frozenset(names)


def double(x: torch.Tensor) -> torch.Tensor:
    """Return a small computation."""
    if not hasattr(x, "sin"):
        raise Odd
    return (x * 2).sin()


def build(mesh: Any) -> tuple[Any, ...]:
    """Return the target of a rank and its arguments."""
    return double, (torch.ones(2),)


class Objects:
    """The values that work, made once."""

    def __init__(self, folder: Path) -> None:
        self.model, self.x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)
        self.capture = package.capture(self.model, self.x)
        self.graph = self.capture.forward
        compiled = torch.compile(self.model, backend="aot_eager")
        with package.watch() as watched:
            compiled(self.x)
        self.watched = watched
        self.steady = package.steady(compiled, (self.x,), (self.x,))
        self.ranks = package.capture_ranks(build, tp=2, via="dispatch")
        other = package.capture(lambda x: double(x) + 1, self.x)
        self.diff = package.diff(package.capture(double, self.x), other)
        half: Any = SimpleNamespace(seconds=1.0, record=watched.record("odd"))
        self.restart = package.Restart(half, half)
        self.folder = folder
        self.file = folder / "stored.tgraph"
        self.file.write_text(self.capture.to_text())


ARGUMENTS: dict[str, Callable[[Objects], dict[str, Any]]] = {
    "assert_graph_text": lambda o: {
        "capture_or_graph": o.graph,
        "text": o.graph.to_text(),
        "detail": "dataflow",
    },
    "capture": lambda o: {
        "*": (double, o.x),
        **{"via": "dispatch", "loss_fn": None, "backward": None, "fake": False, "device": None},
    },
    "capture_ranks": lambda o: {
        **{"build": build, "ranks": (0,), "device": "cpu", "tp": 2, "via": "dispatch"},
    },
    "check_pass": lambda o: {"pass_fn": _refuse, "graph_or_module_or_text": o.graph},
    "diff": lambda o: {"a": o.graph, "b": o.graph},
    "from_fx": lambda o: {"obj": torch.fx.symbolic_trace(double), "name": "a", "kind": "forward"},
    "load": lambda o: {"path": o.file},
    # The targets raise before anything is compiled for long.
    "restart": lambda o: {
        "*": (_refuse, (o.x,)),
        "via": "inductor",
        "backward": None,
        "loss_fn": None,
        "process": False,
    },
    "to_fx": lambda o: {"graph_or_text": o.graph},
    "steady": lambda o: {"*": (double, (o.x,)), "loss_fn": None, "backward": None},
    "Capture.assert_collectives": lambda o: {"expected": {"all_reduce": 1}},
    "Capture.assert_compiled_once": lambda o: {"glob": "0", "model": o.model},
    "Capture.assert_pass": lambda o: {"name": "a"},
    "Capture.phase": lambda o: {"name": "forward"},
    "Capture.assert_distinct_graphs": lambda o: {"count": 1},
    "Capture.assert_dynamic": lambda o: {"name": "input", "dim": 0},
    "Capture.assert_static": lambda o: {"name": "input", "dim": 0},
    "Capture.assert_no_ops": lambda o: {"*": ("aten.add",)},
    "Capture.assert_not_recomputed": lambda o: {"*": ("aten.add",)},
    "Capture.assert_not_saved": lambda o: {"*": ("aten.add",)},
    "Capture.assert_saved": lambda o: {"*": ("aten.add",)},
    "Capture.assert_no_pattern": lambda o: {"pattern": "aten.add -> aten.add"},
    "Capture.assert_pattern": lambda o: {"pattern": "aten.add -> aten.add"},
    "Capture.assert_op_counts": lambda o: {"expected": {"aten.addmm": 1}},
    "Capture.assert_order": lambda o: {"first": "aten.addmm", "second": "aten.relu"},
    "Capture.assert_recomputed": lambda o: {"expected": {"aten.relu": 1}},
    "Capture.assert_repeated": lambda o: {"glob": "*"},
    "Capture.assert_shared": lambda o: {"glob": "*"},
    "Capture.at": lambda o: {"level": "dynamo"},
    "Capture.count": lambda o: {"op": "aten.addmm"},
    "Capture.find": lambda o: {"op": "aten.addmm"},
    "Capture.find_pattern": lambda o: {"pattern": "aten.add -> aten.add"},
    "Capture.fx": lambda o: {"graph": o.graph},
    "Capture.repeated": lambda o: {"glob": "*"},
    "Capture.with_sizes": lambda o: {"s0": 2},
    "Graph.from_text": lambda o: {"text": o.graph.to_text()},
    "Graph.render": lambda o: {"path": o.folder / "graph.dot"},
    "Graph.renamed": lambda o: {"name": "a"},
    "Finding.from_json": lambda o: {"data": o.diff.findings[0].to_json()},
    "GraphTestCase.assertGraph": lambda o: {"capture": o.graph},
    "GraphCapture.__call__": lambda o: {"*": (double, o.x), "via": "dispatch"},
    "GraphCapture.steady": lambda o: {"*": (double, (o.x,))},
    "GraphCapture.restart": lambda o: {"*": (_refuse, (o.x,))},
    "OpCounts.__getitem__": lambda o: {"*": ("aten.addmm",)},
}
"""Arguments that work, for subjects with required parameters. `*`: positional ones."""


def subjects(o: Objects) -> Iterator[Subject]:
    """Yield every public function, method, constructor and option of a mechanism."""
    instances = {
        "Capture": (o.capture, o.watched, o.steady), "Graph": (o.graph,), "Ranks": (o.ranks,),
        "GraphDiff": (o.diff,), "Finding": (o.diff.findings[0],), "Restart": (o.restart,),
        "GraphCapture": (package.GraphCapture(),), "GraphTestCase": (package.GraphTestCase("run"),),
        "OpCounts": (o.capture.op_counts,),
    }  # fmt: skip
    for name in package.__all__:
        thing = getattr(package, name)
        if not inspect.isclass(thing):
            yield _subject(name, thing, o, named(thing))
            continue
        if dataclasses.is_dataclass(thing):
            known = {field.name: None for field in dataclasses.fields(thing) if field.init}
            if name in MECHANISMS:
                yield from _options(name, thing, o)
            elif name not in ("Graph", "Node"):
                yield Subject(name, thing, (), known, named(thing), FEW)
        if name not in instances:
            continue
        for method in dir(thing):
            static = inspect.getattr_static(thing, method, None)
            function = getattr(thing, method, None)
            is_own = str(getattr(function, "__module__", "")).startswith("pytest_torchgraph.")
            if method.startswith("_") and f"{name}.{method}" not in ARGUMENTS:
                continue
            if isinstance(static, property) or not is_own or method in INTERNAL:
                continue
            for number, instance in enumerate(instances[name]):
                bound = getattr(instance, method)
                key = f"{name}.{method}"
                row = key if key in ARGUMENTS or method == "load" else f"Capture.{method}"
                allowed = named(function, thing)
                subject = _subject(row, bound, o, allowed)
                yield subject._replace(name=f"{key}[{number}]" if number else key)


def _subject(name: str, call: Callable[..., Any], o: Objects, allowed: frozenset[str]) -> Subject:
    given = dict(ARGUMENTS.get(name, lambda o: {})(o))
    args = given.pop("*", ())
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.kind is not parameter.POSITIONAL_ONLY and parameter.name not in given:
            if parameter.default is parameter.empty and not args:
                raise LookupError(f"{name} needs a row in ARGUMENTS of {__file__}")
            if parameter.default is not parameter.empty:
                given[parameter.name] = parameter.default
    if inspect.isfunction(call) and name in package.__all__:
        assert call.__doc__, name
    return Subject(name, call, args, given, allowed, tuple(ODD))


def _options(name: str, mechanism: Any, o: Objects) -> Iterator[Subject]:
    """Yield the constructor of a mechanism, with a capture through it."""
    known = {field.name: field.default for field in dataclasses.fields(mechanism)}
    if name == "Inductor":
        known["codegen"] = False

    def through(**options: Any) -> Any:
        return package.capture(double, o.x, via=mechanism(**options))

    yield Subject(name, through, (), known, named(mechanism, package.capture), FEW)


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each call of a subject with one odd argument, and its description."""
    for place in (*range(len(subject.args)), *subject.kwargs):
        for value in subject.values:

            def call(place: Any = place, value: str = value) -> Any:
                args, kwargs = list(subject.args), dict(subject.kwargs)
                (args if isinstance(place, int) else kwargs)[place] = ODD[value]()
                result = subject.call(*args, **kwargs)
                if inspect.isgenerator(result):
                    list(result)

            yield f"{subject.name}({place}={value})", call


def run(subject: Subject, first: int, pipe: Any) -> None:
    """Make the calls of a subject from the given one on; report each before and after it."""
    warnings.simplefilter("ignore")
    for number, (description, call) in enumerate(calls(subject)):
        if number < first:
            continue
        print(json.dumps(["begin", number, description]), file=pipe, flush=True)
        signal.alarm(SECONDS)
        problem = ""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                call()
        except (Odd, unittest.SkipTest):
            pass
        except BaseException as error:
            if "Boolean value of Tensor" in _text(error):
                names = {"of the tensor's own method"}
            else:
                names = {cls.__name__ for cls in type(error).__mro__} & subject.allowed
            if not names:
                text = _text(error)
                problem = f"{type(error).__name__}: {text[:160]}{_where(error)}"
        signal.alarm(0)
        print(json.dumps(["end", number, problem]), file=pipe, flush=True)


def _text(error: BaseException) -> str:
    try:
        return ascii(str(error))
    except Exception as second:
        return f"(its text cannot be read: {type(second).__name__})"


def _where(error: BaseException) -> str:
    traceback, frames = error.__traceback__, []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if "pytest_torchgraph" in code.co_filename:
            frames.append(f"{Path(code.co_filename).name}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return f" [{' '.join(frames[-2:])}]"


def supervise(subject: Subject) -> tuple[int, list[str]]:
    """Run a subject in children; return the number of calls and the problems."""
    problems, count, first = [], 0, 0
    while True:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            code = 1
            with open(write, "w") as pipe:
                run(subject, first, pipe)
                code = 0
            os._exit(code)
        os.close(write)
        open_call = None
        with open(read) as lines:
            for line in lines:
                kind, number, text = json.loads(line)
                if kind == "begin":
                    open_call, count = (number, text), count + 1
                elif open_call is not None:
                    if text:
                        problems.append(f"{open_call[1]}: {text}")
                    open_call = None
        _, status = os.waitpid(child, 0)
        if open_call is None:
            if status:
                problems.append(f"{subject.name}: the child ended with status {status}")
            return count, problems
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"
        problems.append(f"{open_call[1]}: the process ended, {how}")
        first = open_call[0] + 1


def main(shard: int, shards: int, only: str = "") -> None:
    """Print the result of a shard."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        all_subjects = list(subjects(Objects(Path(folder))))
        calls_made, problems = 0, []
        for subject in all_subjects[shard::shards]:
            if only in subject.name:
                count, found = supervise(subject)
                calls_made += count
                problems += found
        print(
            json.dumps(
                {"subjects": len(all_subjects), "calls": calls_made, "problems": problems}, indent=1
            )
        )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
