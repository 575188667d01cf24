"""Queries and assertions about ops, shared by graphs and captures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .collectives import Collective
    from .model import Graph, Node
    from .pattern import Match


class OpChecks:
    """Queries and assertions about the ops of graphs, including bodies of higher-order ops.

    Methods that take `dtype`, `module`, `device` or `annotation` filter the ops by them:

    - `dtype` selects ops with a tensor result of this dtype: a `torch.dtype`, `"float32"` or
      `"f32"`.
    - `module` selects ops in a module or its submodules: a path, or a glob such as
      `"encoder.layer.*.attention"`.
    - `device` selects ops with a tensor result on this device: `"cuda"` or `"cuda:1"`.
    - `annotation` selects ops that `torch.fx.traceback.annotate` or a pass annotated
      (`node.meta["custom"]`): a key, or a mapping of keys to values.

    An op without a tensor result, such as `_foreach_add_`, is matched by the tensors that it
    writes. A filter that would make a check always pass raises `ValueError`: a module without
    captured ops, an annotation that no node has, an unknown dtype or device, or a dtype or device
    filter on ops without tensors. If a known dtype or device does not occur, the count is 0.

    `allow` applies to watches in which calls of compiled callables ran eagerly. It takes regular
    expressions that are searched in `"kind: reason"` of each `EagerCall`. An eager call that no
    expression matches fails the method, because its ops are in no graph. Likewise for code that was
    compiled before the watch: `"compiled before the watch: FUNCTION (FILE:LINE)"`.

    `phase` restricts a check to a phase of the step: `"forward"`, `"backward"` or `"update"`, see
    `Capture.phase`, eager graphs included. A check of a phase that the step does not have fails.
    """

    __slots__ = ()

    def _to_check(
        self, allow: str | Sequence[str] | None = None, phase: str | None = None
    ) -> Sequence[Graph]:
        """Return the graphs to check, or raise an error if graphs are missing.

        Args:
            allow: see `OpChecks`; `None` for a method without the argument `allow`.
            phase: see `OpChecks`; `None` for all graphs.
        """
        raise NotImplementedError

    def _checked_device(self) -> str | None:
        """Return the device type requested for the capture; `None` if none was requested."""
        return None

    def find(
        self,
        op: str | Callable[..., Any],
        *,
        dtype: Any = None,
        module: str | None = None,
        device: Any = None,
        annotation: str | Mapping[str, Any] | None = None,
        allow: str | Sequence[str] = (),
        phase: str | None = None,
    ) -> tuple[Node, ...]:
        """Return the nodes whose op matches `op`. For patterns, see `assert_op_counts`.

        Raises:
            ValueError: if `op` is a pattern that cannot match at the graphs' level, or for a filter
                (see `OpChecks`).
        """
        from .find import find
        from .select import selection

        graphs = self._to_check(allow, phase)
        return find(graphs, op, selection(graphs, dtype, module, device, annotation))

    def count(
        self,
        op: str | Callable[..., Any],
        *,
        dtype: Any = None,
        module: str | None = None,
        device: Any = None,
        annotation: str | Mapping[str, Any] | None = None,
        allow: str | Sequence[str] = (),
        phase: str | None = None,
    ) -> int:
        """Return the number of runs of matching ops. For patterns, see `find`.

        A graph that ran several times counts once; with `module`, an op counts for each of these
        modules that its graph ran for. An op in a body counts once per call of the body. In `map`
        and `scan` it counts once per row.
        """
        from .find import count
        from .select import selection

        graphs = self._to_check(allow, phase)
        return count(graphs, op, selection(graphs, dtype, module, device, annotation))

    def assert_op_counts(
        self,
        expected: Mapping[Any, Any],
        *,
        exact: bool = False,
        dtype: Any = None,
        module: str | None = None,
        device: Any = None,
        annotation: str | Mapping[str, Any] | None = None,
        allow: str | Sequence[str] = (),
        phase: str | None = None,
    ) -> None:
        """Assert the counts of ops, over all graphs, as `count` counts them.

        Args:
            expected: maps an op to its count. The op is a packet (`"aten.mm"`), an overload
                (`"aten.mm.default"`), a glob over both (`"aten.add*"`) or an object
                (`torch.ops.aten.mm`, `torch.relu`). The count is an int, a pair `(min, max)` in
                which max may be `None`, or a mapping by device type.
            exact: require every op that occurs to match one of the patterns.
            dtype, module, device, annotation, allow, phase: see `OpChecks`.

        Raises:
            AssertionError: with the actual counts.
            TypeError: if `expected` is empty, or if it allows any number of each op and `exact` is
                False.
            ValueError: for a pattern that can match nothing at the graphs' level.
        """
        __tracebackhide__ = True
        from .checks import assert_op_counts
        from .select import selection

        graphs = self._to_check(allow, phase)
        assert_op_counts(
            graphs,
            expected,
            exact=exact,
            device=self._checked_device(),
            selected=selection(graphs, dtype, module, device, annotation),
        )

    def assert_no_ops(
        self,
        *ops: Any,
        dtype: Any = None,
        module: str | None = None,
        device: Any = None,
        annotation: str | Mapping[str, Any] | None = None,
        allow: str | Sequence[str] = (),
        phase: str | None = None,
    ) -> None:
        """Assert that none of these ops occurs. For patterns, see `assert_op_counts`.

        Args:
            ops: the ops.
            dtype, module, device, annotation, allow, phase: see `OpChecks`.

        Raises:
            AssertionError: with each op that occurs and its source lines.
            TypeError: without any op.
            ValueError: for a pattern that can match nothing at the graphs' level.
        """
        __tracebackhide__ = True
        from .checks import assert_no_ops
        from .select import selection

        graphs = self._to_check(allow, phase)
        assert_no_ops(graphs, ops, selected=selection(graphs, dtype, module, device, annotation))

    def find_pattern(
        self, pattern: str, *, allow: str | Sequence[str] = (), phase: str | None = None
    ) -> tuple[Match, ...]:
        """Find ops that use the result of another op: `"aten.mm -> aten.gelu"`.

        Args:
            pattern: ops separated by `->` or `~>`, with `|` between alternatives:
                `"aten.mm | aten.addmm -> aten.gelu ~> aten.sum"`. With `->`, the right op uses the
                result of the left op directly, or through the `getitem` of a multi-output op. With
                `~>`, it uses the result at any distance. Both also match across a graph break. A
                value that is saved for the backward is not followed. Ops are given as in
                `assert_op_counts`.
            allow, phase: see `OpChecks`.

        Returns:
            One match per node of the right-hand side. For `~>`, the match has the nearest node of
            the left-hand side.

        Raises:
            TypeError, ValueError: for an invalid pattern, or an op that can match nothing at the
                graphs' level.
        """
        from .pattern import find_pattern, parse_pattern

        return find_pattern(self._to_check(allow, phase), parse_pattern(pattern))

    def assert_pattern(
        self,
        pattern: str,
        count: Any = None,
        *,
        allow: str | Sequence[str] = (),
        phase: str | None = None,
    ) -> None:
        """Assert that an op uses the result of another op; see `find_pattern`.

        Args:
            pattern: the pattern.
            count: number of matches: an int, a pair `(min, max)`, or a mapping by device type.
                `None` requires at least one match.
            allow, phase: see `OpChecks`.

        Raises:
            AssertionError: with the actual matches, and the operands of the right-hand ops.
            TypeError: for a count that allows any number.
        """
        __tracebackhide__ = True
        from .pattern import assert_pattern

        graphs = self._to_check(allow, phase)
        assert_pattern(graphs, pattern, count, self._checked_device())

    def assert_no_pattern(
        self, pattern: str, *, allow: str | Sequence[str] = (), phase: str | None = None
    ) -> None:
        """Assert that nothing matches a pattern; see `find_pattern`.

        Args:
            pattern: the pattern.
            allow, phase: see `OpChecks`.

        Raises:
            AssertionError: with the modules and lines of each match.
            ValueError: for an op that can match nothing at the graphs' level.
        """
        __tracebackhide__ = True
        from .pattern import assert_no_pattern

        assert_no_pattern(self._to_check(allow, phase), pattern)

    def assert_order(
        self,
        first: Any,
        second: Any,
        *,
        allow: str | Sequence[str] = (),
        phase: str | None = None,
    ) -> None:
        """Assert that every `first` precedes every `second`, in each graph that contains both.

        Args:
            first, second: ops, as in `assert_op_counts`.
            allow, phase: see `OpChecks`.

        Raises:
            AssertionError: with two nodes in the wrong order. Also if one of the ops does not
                occur, or if no graph contains both.
        """
        __tracebackhide__ = True
        from .pattern import assert_order

        assert_order(self._to_check(allow, phase), first, second)

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """Collectives in the order of the graphs, without waits.

        For a graph with inductor code, the collectives have the order of the code. A watch sees the
        collectives of compiled graphs, but not of the code around them.

        `print(capture.collectives)` shows a table with one line per collective.

        In a capture, each collective appears as often as its graph ran. In a capture loaded from a
        file, compiled graphs count once.

        Raises:
            CaptureError: via "dynamo" and "fx", if a `DTensor` is redistributed, or if a module
                that is one node communicates. Via "compiled_autograd", if the backward calls hooks.
                Via "dynamo" and "compiled_autograd", and for a watch, after a graph break, because
                no graph has the ops between two graphs.
        """
        from .collectives import Collectives

        return Collectives(self._sent()[1])

    def _sent(self, phase: str | None = None) -> tuple[Sequence[Graph], tuple[Collective, ...]]:
        """Return the graphs to check, and their collectives."""
        from .collectives import collectives_of

        graphs = self._to_check(phase=phase)
        return graphs, collectives_of(graphs)

    def assert_collectives(
        self,
        expected: Mapping[str, Any],
        group: str | None = None,
        bytes: Any = None,
        exact: bool = True,
        *,
        phase: str | None = None,
    ) -> None:
        """Assert the collectives between ranks.

        Args:
            expected: maps a kind, such as `"all_reduce"` (see `Collective`), to its count: an int,
                a pair `(min, max)` in which max may be `None`, or a mapping by device type. `{}`
                expects no collective.
            group: check only collectives over one group: the name of a mesh dimension, or `"g0"`.
                `None` counts all groups together. A dimension without collectives counts 0 if the
                mesh is known. A capture of `graph_ranks` knows its mesh, a file does not.
            bytes: total bytes of the checked collectives: an int, a pair `(min, max)`, or a mapping
                by device type.
            exact: allow only the kinds in `expected`.
            phase: see `OpChecks`.

        Raises:
            AssertionError: with the actual collectives, their groups, bytes and lines.
            TypeError: if `exact` is False and nothing is checked, because `expected` is empty, or
                because `expected` and `bytes` allow any number.
            ValueError: for an unknown kind, and for a group without collectives, unless it is a
                dimension of a known mesh.
        """
        __tracebackhide__ = True
        from .collective_checks import assert_collectives

        assert_collectives(
            *self._sent(phase), expected, group, bytes, exact, self._checked_device()
        )

    def assert_overlapped(
        self, group: str | None = None, kind: str | None = None, at_least: int = 1, exposed: Any = 0
    ) -> None:
        """Assert that collectives overlap with computation, between start and wait.

        The ops that compute are counted; for a graph with inductor code, the kernels and library
        calls are counted. Views, allocations, waits and other collectives do not count. See
        `Collective.overlap`.

        Args:
            group: check only collectives over one group: the name of a mesh dimension, or `"g0"`.
            kind: check only collectives of one kind, such as `"all_gather"`.
            at_least: minimum number of ops, or kernels, that overlap with each collective.
            exposed: number of collectives that may lack overlap: an int, a pair `(min, max)`, or a
                mapping by device type. Use 1, for example, if the step waits for its first
                collective before it computes anything.

        Raises:
            AssertionError: with the module and line of each exposed collective. Also if there is no
                collective to check.
            CaptureError: for a graph of torch functions, for example via "dynamo", because its
                views are unknown.
            TypeError: if `exposed` allows any number.
            ValueError: for an unknown kind, for `at_least` below 1, and for a group without
                collectives, unless it is a dimension of a known mesh.
        """
        __tracebackhide__ = True
        from .collective_checks import assert_overlapped

        assert_overlapped(*self._sent(), group, kind, at_least, exposed, self._checked_device())
