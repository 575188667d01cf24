"""`GraphTestCase`: captures, watches and stored graphs in a suite of `unittest`.

It knows no pytest. Where pytest runs a test, the plugin assigns `torchgraph_run`, an object with
the two methods of `PytestRun`.
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
    """What pytest's run of a test offers."""

    def isolated(self, fresh: bool) -> AbstractContextManager[None]:
        """Return the isolation of the rest of a test; a no-op if the test is isolated already."""

    def compare(self, value: object, name: str | None, detail: Detail | None) -> None:
        """Compare with a stored graph.

        Raises:
            AssertionError: if it differs.
        """


class _LazyCapture:
    """`graph_capture` of a test or class: isolates the test and imports torch when it is used."""

    def __init__(self, test: GraphTestCase | None) -> None:
        self._test = test

    def __call__(self, target: Any, /, *args: Any, **kwargs: Any) -> Capture:
        return self._begun()(target, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._begun(), name)

    def _begun(self) -> GraphCapture:
        if self._test is not None:
            self._test.torchgraph_isolate()
        from .capture import GraphCapture

        return GraphCapture()


class _GraphCaptureAttribute:
    """`graph_capture` of a test, which isolates it, and of a class, as in `setUpClass`."""

    # pytest looks at each attribute of a class when it collects: nothing may happen here.
    def __get__(self, test: GraphTestCase | None, owner: type) -> GraphCapture:
        return cast("GraphCapture", _LazyCapture(test))


class GraphTestCase(unittest.TestCase):
    """A test case whose tests capture graphs and compare them with stored ones.

    A test is isolated from its first capture or watch on; tests without any run as ever. Stored
    graphs need pytest; under `python -m unittest` `assertGraph` skips its test.
    """

    graph_capture = _GraphCaptureAttribute()
    """As the fixture `graph_capture`."""

    torchgraph_run: PytestRun | None = None
    """What pytest offers to the test; assigned by the plugin."""
    _torchgraph_stack: contextlib.ExitStack | None = None
    _torchgraph_isolated = False
    _torchgraph_frames = 0
    _torchgraph_parameters: tuple[str, ...] = ()

    # Not setUp, which a class may override without calling this one.
    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test, and end its isolation afterwards, if it has one."""
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
        """As `TestCase.subTest`; message and parameters are part of the names of stored graphs."""
        # Not unittest's own record of them: old releases of pytest make it do nothing.
        before = self._torchgraph_parameters
        own = [msg] if isinstance(msg, str) else []
        words = [*own, *(f"{name}={value}" for name, value in params.items())]
        self._torchgraph_parameters = (*before, *words)
        try:
            with super().subTest(**params) if msg is None else super().subTest(msg, **params):
                yield
        finally:
            self._torchgraph_parameters = before

    def graph_watch(self) -> AbstractContextManager[Capture]:
        """Watch what is compiled and run, as `graph_capture.watch()`."""
        return self.graph_capture.watch()

    def assertGraph(
        self, capture: object, name: str | None = None, detail: Detail | None = None
    ) -> None:
        """Compare with the stored graph, as `assert capture == graph_snapshot(...)`.

        Args:
            capture: what `graph_snapshot` compares: a capture, ranks, a graph, a torch.fx graph.
            name: tells several comparisons of one test apart.
            detail: "ops", "dataflow" (the default) or "full".

        Raises:
            AssertionError: if the graphs differ, or none is stored.
            unittest.SkipTest: without pytest.
            ValueError: for a parameter of `subTest` whose text has an address, without a `name`.
        """
        __tracebackhide__ = True
        if self.torchgraph_run is None:
            raise unittest.SkipTest(
                "assertGraph compares with stored graphs, which pytest runs with the plugin of "
                "pytest-torchgraph: python -m pytest"
            )
        words = ",".join(self._torchgraph_parameters)
        if " at 0x" in words:
            raise ValueError(
                f"a parameter of subTest has another text in each run, {words}: pass a text to "
                "subTest, as in self.subTest(layer=type(layer).__name__)"
            )
        if words:
            from ..words import IN_SUBTEST

            name = f"{words}{IN_SUBTEST}{name or ''}"
        self.torchgraph_run.compare(capture, name, detail)

    def torchgraph_isolate(self) -> None:
        """Isolate the rest of the test, at its first capture or watch."""
        if self._torchgraph_isolated or self._torchgraph_stack is None:
            return
        self._torchgraph_isolated = True
        # What this test compiled must stay: a watch afterwards would see it compile again, and
        # find no recompilation where there is one.
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
    """Return how many frames Dynamo compiled, 0 before it is imported; imports nothing."""
    # Not by torch_private, whose import a test without captures would pay for.
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters["frames"].get("total", 0)) if "frames" in counters else 0
