"""`GraphTestCase`: captures, watches and stored graphs for `unittest` suites.

This module does not depend on pytest. If pytest runs a test, the plugin assigns
`torchgraph_run`, an object with the two methods of `PytestRun`.
"""

from __future__ import annotations

import contextlib
import sys
import unittest
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..graph.model import Detail
    from .capture import GraphCapture
    from .result import Capture


class PytestRun(Protocol):
    """The services of pytest for a running test."""

    def isolated(self, fresh: bool) -> AbstractContextManager[None]:
        """Return a context that isolates the rest of a test, unless the test is isolated already.

        Args:
            fresh: True if the test has compiled nothing yet.
        """

    def compare(self, value: object, name: str | None, detail: Detail | None) -> None:
        """Compare a value with a stored graph.

        Raises:
            AssertionError: if the graphs differ.
        """


class _LazyCapture:
    """`graph_capture` of a test or class: isolates the test and imports torch on first use."""

    def __init__(self, test: GraphTestCase | None) -> None:
        self._test = test

    def __call__(self, target: Any, /, *args: Any, **kwargs: Any) -> Capture:
        return self._isolated_capture()(target, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # such as `__wrapped__`, which pytest reads during collection
            raise AttributeError(name)
        return getattr(self._isolated_capture(), name)

    def _isolated_capture(self) -> GraphCapture:
        """Isolate the test, if there is one, and return the real `graph_capture`."""
        if self._test is not None:
            self._test.torchgraph_isolate()
        from .capture import GraphCapture

        return GraphCapture()


class _GraphCaptureAttribute:
    """Descriptor of `graph_capture`. On a class (in `setUpClass`), no test is isolated."""

    # pytest reads every class attribute during collection, so reading has no side effects.
    def __get__(self, test: GraphTestCase | None, owner: type) -> GraphCapture:
        return cast("GraphCapture", _LazyCapture(test))


class GraphTestCase(unittest.TestCase):
    """A test case whose tests capture graphs and compare them with stored graphs.

    For example, `self.assertGraph(self.graph_capture(model, x))` captures the graphs of a model and
    compares them with the stored ones. The first capture or watch of a test isolates the rest of
    the test; other tests run as usual. Stored graphs need pytest. Under `python -m unittest`,
    `assertGraph` skips its test.
    """

    graph_capture = _GraphCaptureAttribute()
    """Like the `graph_capture` fixture."""

    torchgraph_run: PytestRun | None = None
    """Pytest's services for the test; assigned by the plugin."""
    _torchgraph_stack: contextlib.ExitStack | None = None
    _torchgraph_isolated = False
    _torchgraph_frames = 0
    _torchgraph_parameters: tuple[str, ...] = ()

    # Not in setUp: a class may override it without calling super().
    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test, then end its isolation, if any."""
        self._torchgraph_frames = _frames()
        with contextlib.ExitStack() as stack:
            self._torchgraph_stack = stack
            try:
                return super().run(result)
            finally:
                self._torchgraph_stack = None
                self._torchgraph_isolated = False

    @contextlib.contextmanager
    def subTest(self, msg: Any = None, **params: Any) -> Iterator[None]:
        """Act like `TestCase.subTest`. Names of stored graphs contain message and parameters."""
        # Do not read unittest's own record of subtests, which old releases of pytest disable.
        before = self._torchgraph_parameters
        message = [msg] if isinstance(msg, str) else []
        words = [*message, *(f"{name}={value}" for name, value in params.items())]
        self._torchgraph_parameters = (*before, *words)
        try:
            # unittest marks a missing message with an object of its own, not with `None`.
            with super().subTest(**params) if msg is None else super().subTest(msg, **params):
                yield
        finally:
            self._torchgraph_parameters = before

    def graph_watch(self) -> AbstractContextManager[Capture]:
        """Watch what is compiled and run, like `graph_capture.watch()`."""
        return self.graph_capture.watch()

    def assertGraph(
        self, capture: object, name: str | None = None, detail: Detail | None = None
    ) -> None:
        """Compare a capture with the stored graphs, like `assert capture == graph_snapshot(...)`.

        Args:
            capture: what `graph_snapshot` accepts: a capture, ranks, a graph or a torch.fx graph.
            name: distinguishes several comparisons in one test.
            detail: "ops", "dataflow" (the default) or "full".

        Raises:
            AssertionError: if the graphs differ, or no graph is stored.
            unittest.SkipTest: without pytest.
            ValueError: if a `subTest` parameter's text contains an address or several lines.
        """
        if self.torchgraph_run is None:
            raise unittest.SkipTest(
                "assertGraph needs pytest with the pytest-torchgraph plugin: python -m pytest"
            )
        parameters = ",".join(self._torchgraph_parameters)
        # A file name must be the same in each run, but a default `repr` contains an address.
        if " at 0x" in parameters or "\n" in parameters:
            problem = "has several lines" if "\n" in parameters else "differs between runs"
            raise ValueError(
                f"the text of a subTest parameter {problem}: {parameters.splitlines()[0]}. Pass a "
                "short and stable text, such as self.subTest(layer=type(layer).__name__)"
            )
        if parameters:
            from ..words import IN_SUBTEST

            name = f"{parameters}{IN_SUBTEST}{name or ''}"
        self.torchgraph_run.compare(capture, name, detail)

    def torchgraph_isolate(self) -> None:
        """Isolate the rest of the test, on its first capture or watch."""
        if self._torchgraph_isolated or self._torchgraph_stack is None:
            return
        self._torchgraph_isolated = True
        # Keep the code that this test already compiled. Otherwise, a later watch would see it
        # compile again instead of a recompilation.
        fresh = _frames() == self._torchgraph_frames
        if self.torchgraph_run is not None:
            context = self.torchgraph_run.isolated(fresh)
        else:
            from ..torch_release import why_unsupported

            if reason := why_unsupported():
                raise unittest.SkipTest(reason)
            from ..isolation import isolated

            context = isolated(fresh=fresh)
        self._torchgraph_stack.enter_context(context)


def _frames() -> int:
    """Return the number of frames that Dynamo compiled, 0 before its import. Import nothing."""
    # Do not use torch_private, whose import would slow down tests without captures.
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters["frames"].get("total", 0)) if "frames" in counters else 0
