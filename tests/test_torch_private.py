"""The private names of torch, and their use."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch._logging import trace_structured

from pytest_torchgraph import CaptureError, TorchGraphError, capture, torch_private, watch
from pytest_torchgraph.audit import facts_of
from pytest_torchgraph.marker import find_problems
from pytest_torchgraph.settings.limits import Limits
from pytest_torchgraph.torch_private import observers
from pytest_torchgraph.watching.observe.hub import SKIPPED_BY_DYNAMO

SEAM = Path(torch_private.__file__).parent


def test_this_torch_has_every_private_name() -> None:
    """Newer names with a replacement may be missing (`has`)."""
    assert len(torch_private.NAMES) > 10
    running = Version(torch.__version__.partition("+")[0])
    later = {name for name, known in torch_private.NAMES.items() if Version(known.since) > running}
    assert set(torch_private.probe()) == later
    assert later <= {
        "in_hop_compile",
        "inference_aware_pass",
        "precompiled_call",
        "should_save_cache",
        "skip_reason",
    }


def test_backward_compiled_before_the_watch_is_found() -> None:
    """It is reached through objects of torch, whose type can change while their names stay."""
    torch._dynamo.reset()  # otherwise compile ids go on from those of an earlier test
    compiled = torch.compile(torch.nn.Linear(4, 4), backend="aot_eager")
    compiled(torch.ones(2, 4)).sum().backward()
    with watch() as seen:
        compiled(torch.ones(2, 4)).sum().backward()
    assert dict(seen.executions) == {"0/0": 1, "0/0 backward": 1}


def test_a_function_that_dynamo_skips_is_not_kept() -> None:
    def make() -> Callable[[], list[int]]:
        held = [1]
        return lambda: held

    function = make()
    torch_private.leave_function_alone(function)
    reference = weakref.ref(function)
    del function
    assert reference() is None


def test_precompiled_code_is_noticed(tmp_path: Path) -> None:
    if "precompiled_call" in torch_private.probe():
        pytest.skip("this torch has no torch.compiler.precompile")
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.ones(2, 8)
    files = tmp_path / "model.py", tmp_path / "model.cache"
    precompile: Any = torch.compiler.precompile  # type: ignore[attr-defined]

    def run(model: Any, x: torch.Tensor) -> Any:
        return model(x)

    with torch.no_grad():
        if hasattr(precompile, "capture"):
            tracer = precompile.capture(run, artifact_path=files[0], cache_path=files[1])
            with tracer:
                tracer(model, x)
            loaded = precompile.load(*files)
        else:  # torch 2.14
            loaded = precompile.load(*precompile(run, model, x))
        for via in ("dispatch", "aot"):
            with pytest.raises(CaptureError, match=r"code of torch\.compiler\.precompile ran at "):
                capture(lambda x: loaded(model, x.sin()), x, via=via)
    function = torch.compile(lambda x: x.sin(), backend="aot_eager")
    with watch() as seen, torch.no_grad():
        loaded(model, function(x))
    (call,) = seen.eager_calls
    assert str(call) == (
        "PrecompiledModule: its call ran unseen: torch.compiler.precompile compiled it, so "
        "its graph is unknown"
    )
    with pytest.raises(AssertionError, match=r"ran unseen: torch\.compiler\.precompile"):
        seen.assert_no_ops("aten.mm")
    seen.assert_no_ops("aten.mm", allow="precompile")
    ((_, problem),) = find_problems(seen, Limits())
    assert "ran unseen: torch.compiler.precompile" in str(problem)
    facts = facts_of(seen.watched)  # type: ignore[arg-type]
    assert [cause.kind for cause in facts.causes] == ["eager"]


def test_call_of_an_aot_compiled_function_is_noticed() -> None:
    def unseen(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    x = torch.ones(2)
    compiled: Any = torch.compile(unseen, fullgraph=True, backend="aot_eager")
    if not hasattr(compiled, "aot_compile"):
        pytest.skip("this torch has no aot_compile of a function")
    loaded = compiled.aot_compile(((x,), {}))
    function = torch.compile(lambda x: x.sin(), backend="aot_eager")
    with watch() as seen:
        loaded(function(x))
    (call,) = seen.eager_calls
    assert (call.kind, call.count, call.calls) == ("skipped", 1, 1)
    assert "unseen" in call.function
    with pytest.raises(AssertionError, match="ran unseen: aot_compile compiled it"):
        seen.assert_no_ops("aten.exp")
    seen.assert_no_ops("aten.exp", allow="aot_compile")


def test_private_names_have_a_location_and_a_purpose() -> None:
    for name, known in torch_private.NAMES.items():
        assert re.fullmatch(r"(torch|functorch)[\w.]*:[\w.]+", known.path), name
        assert Version(known.since).release >= (2, 9), name
        assert known.purpose, name


def test_every_private_name_is_needed() -> None:
    """Each name is a string literal outside the table."""
    table = SEAM / "private_names.py"
    texts = [path.read_text() for path in SEAM.parent.rglob("*.py") if path != table]
    unused = [n for n in torch_private.NAMES if not any(f'"{n}"' in text for text in texts)]
    assert unused == []


def test_missing_private_name_lists_unavailable_features(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = torch_private.PrivateName("torch._dynamo.utils:gone", "2.0", "captures via aot")
    monkeypatch.setitem(torch_private.NAMES, "counters", gone)
    with pytest.raises(TorchGraphError, match=r"has no torch\._dynamo\.utils\.gone .*unavailable"):
        torch_private.get("counters")
    assert "counters" in torch_private.probe()


def test_private_names_are_used_only_through_torch_private() -> None:
    private = re.compile(r"torch\.(_C|_dynamo|_functorch|_inductor|_logging)\b|functorch\.")
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in SEAM.parent.rglob("*.py")
        if path.parent != SEAM
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if private.search(line) and '"' not in line and "`" not in line
    ]
    assert found == []


def test_unread_trace_records_are_not_created() -> None:
    made: list[str] = []
    seen: list[str] = []

    def payload(name: str) -> str:
        made.append(name)
        return name

    def write(name: str) -> None:
        trace_structured("artifact", lambda: {"name": name}, payload_fn=lambda: payload(name))
        trace_structured(name, payload_fn=lambda: payload(name))

    logger = logging.getLogger("torch.__trace")
    before, enabled = logger.handlers, vars(logger).get("isEnabledFor")
    try:
        logger.handlers = []
        with torch_private.structured_trace(lambda _, text: seen.append(text), {"wanted"}):
            write("wanted")
            write("other")
            assert (made, seen) == (["wanted"] * 2, ["wanted"] * 2)
            logger.addHandler(logging.NullHandler())  # a reader exists from here on
            write("other")
            assert (made[2:], seen[2:]) == (["other"] * 2, [])
            with torch_private.structured_trace(lambda _, text: seen.append(text)):
                write("another")
            assert seen[2:] == ["another"] * 2
        assert type(logger.handlers) is list
        assert vars(logger).get("isEnabledFor") is enabled
        assert [type(handler) for handler in logger.handlers] == [logging.NullHandler]
    finally:
        logger.handlers = before


@pytest.mark.parametrize("package", SKIPPED_BY_DYNAMO)
def test_packages_that_run_during_compilation_exist(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """A module below a package of ours, and a package whose name has the same prefix."""
    monkeypatch.setattr(observers, "_left_alone", set(observers._left_alone))
    watching = SKIPPED_BY_DYNAMO[0]
    made = {"below": ModuleType(f"{watching}.more"), "alike": ModuleType(f"{watching}_more")}
    for module in made.values():
        # with a file, because torch 2.9 wraps and inlines modules without one
        exec(compile("def double(x):\n    return x * 2\n", __file__, "exec"), vars(module))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


@pytest.mark.parametrize(("name", "graphs"), [("below", 0), ("alike", 1)])
def test_dynamo_skips_modules_below_a_package(
    modules: dict[str, ModuleType], name: str, graphs: int
) -> None:
    compiled: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        compiled.append(graph)
        return graph

    torch_private.leave_alone(*SKIPPED_BY_DYNAMO)
    torch.compile(modules[name].double, backend=backend)(torch.ones(2))
    assert len(compiled) == graphs


def test_functions_that_call_torch_exist() -> None:
    """`leave_alone` lists them by name, so a renamed function would be missed."""
    names = {
        code.co_name
        for package in (torch_private.__name__, *SKIPPED_BY_DYNAMO)
        for name, module in list(sys.modules.items())
        if f"{name}.".startswith(f"{package}.")
        for value in vars(module).values()
        for function in (vars(value).values() if isinstance(value, type) else [value])
        if hasattr(inspect.unwrap(function) if callable(function) else None, "__code__")
        for code in nested(inspect.unwrap(function).__code__)
    }
    assert names >= observers._CALLING_TORCH


def nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)
