"""A refusal by this package has a traceback that ends in the user's code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from projects import Run

from pytest_torchgraph import CaptureError, capture
from pytest_torchgraph.report.failed_check import edit_own_error


def compiled_inside(x: torch.Tensor) -> torch.Tensor:
    step: Callable[..., torch.Tensor] = torch.compile(torch.relu, backend="eager")
    return step(x)


def shown(call: Callable[[], Any], error: type[Exception]) -> list[tuple[str, str]]:
    """Return the files and functions that the report of a failing call shows."""
    with pytest.raises(error) as caught:
        call()
    edit_own_error(caught, hide=True)
    frames = caught.traceback[1:].filter(caught)
    return [(Path(frame.path).name, frame.name) for frame in frames]


@pytest.mark.parametrize(
    ("call", "error", "inside"),
    [
        (lambda: capture(lambda x: 3, torch.ones(2)), CaptureError, []),
        (lambda: capture(torch.ones(2)), TypeError, []),
        (lambda: capture(torch.relu, torch.ones(2), via="aott"), ValueError, []),
        (lambda: capture(torch.relu, torch.ones(2)).assert_graph_count(3), AssertionError, []),
        (
            lambda: capture(compiled_inside, torch.ones(2), via="dispatch"),
            CaptureError,
            ["compiled_inside"],
        ),
    ],
    ids=["capture", "type", "value", "assertion", "in the target"],
)
def test_traceback_of_a_refusal_ends_in_user_code(
    call: Callable[[], Any], error: type[Exception], inside: list[str]
) -> None:
    here = Path(__file__).name
    assert shown(call, error) == [(here, name) for name in ("<lambda>", *inside)]


def fails(x: torch.Tensor) -> None:
    raise ValueError("the target's own")


def fails_in_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, x)


@pytest.mark.parametrize("via", ["aot", "dispatch"])
@pytest.mark.parametrize(("target", "error"), [(fails, ValueError), (fails_in_torch, RuntimeError)])
def test_traceback_of_a_user_error_omits_our_frames(
    target: Callable[[torch.Tensor], Any], error: type[Exception], via: str
) -> None:
    here = Path(__file__).name
    frames = shown(lambda: capture(target, torch.ones(2, 3), via=via), error)
    assert frames[0] == (here, "<lambda>")
    assert [name for file, name in frames if file == here][1:] == [target.__name__]
    assert not {"capture.py", "step.py", "invocation.py"}.intersection(file for file, _ in frames)


def test_traceback_of_an_error_in_a_torch_module_is_the_users() -> None:
    frames = shown(lambda: capture(torch.nn.Linear(4, 4), torch.ones(2, 5)), RuntimeError)
    assert {file for file, _ in frames} == {Path(__file__).name, "module.py", "linear.py"}


def test_traceback_of_an_internal_error_has_all_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = capture(torch.sin, torch.ones(2)).graphs[0]
    monkeypatch.setattr(
        "pytest_torchgraph.graph.find.find_calls", None
    )  # calling it is our TypeError
    frames = shown(lambda: graph.find("aten.sin"), TypeError)
    assert [file for file, _ in frames][-1] == "find.py"


@pytest.mark.slow("a run of pytest of its own")
def test_traceback_has_our_frames_only_on_request(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_it="""
        import unittest

        from graphs import graph
        from pytest_torchgraph.graph import Graph

        def test_text():
            Graph.from_text("torchgraph 99")

        class TestNet(unittest.TestCase):
            def test_no_op(self):
                graph().assert_no_ops("aten.to_copy")
        """
    )
    ours = re.compile(r"pytest_torchgraph[/\\]graph[/\\].*:\d+: ")
    output = run().stdout.str()
    assert "GraphFormatError: " in output
    assert "test_it.py:7: GraphFormatError" in output
    assert "test_it.py:11: ValueError" in output
    assert not ours.search(output)
    assert ours.search(run("--full-trace").stdout.str())
