"""Records the graph passes that inductor runs: `capture.passes`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import fx

from ... import torch_private
from ...convert.from_fx import Naming, convert
from ...convert.graph_modules import LazyCopy
from ...graph.diff import GraphDiff, diff_graphs
from ...graph.model import Graph
from ...ops.matching import Level

NEEDED = ("decompose_", "stable_sort")
"""Beginnings of the names of passes that inductor cannot do without."""


@dataclass(frozen=True, eq=False)
class PassRun:
    """One run of a graph pass in inductor.

    Attributes:
        name: name of the pass. For a pass of the user, the name of its function or class; torch
            reports it under the name of its hook.
        subsystem: torch's name of the group of passes, such as "post_grad_passes".
        hook: setting of inductor that holds the pass, for a pass of the user; "" for torch's own.
        parent: name of the pass that ran this one, such as a pass that applies patterns; "" if
            inductor ran it.
        graph: name of the graph in the capture; "joint" for the graph before it is split into
            forward and backward, "dynamo" for the graph before AOTAutograd.
        changed: True if the pass changed the graph.
        matches: number of matches that a `PatternMatcherPass` replaced; `None` for other passes.
        before, after: the graph before and after the pass.
        diff: the difference that the pass made.
    """

    name: str
    subsystem: str
    hook: str
    parent: str
    graph: str
    changed: bool
    matches: int | None
    modules: tuple[LazyCopy, LazyCopy] = field(repr=False)

    @cached_property
    def before(self) -> Graph:
        """The graph before the pass."""
        return self._converted(0)

    @cached_property
    def after(self) -> Graph:
        """The graph after the pass."""
        return self._converted(1)

    @cached_property
    def diff(self) -> GraphDiff:
        """The difference that the pass made."""
        return diff_graphs((self.before,), (self.after,))

    def _converted(self, side: int) -> Graph:
        """Return the graph before the pass for 0, after it for 1."""
        levels: Mapping[str, Level] = {"dynamo": "dynamo", "joint": "aot"}
        level = levels.get(self.graph, "post_grad")
        naming = Naming(given=True)
        return convert(self.modules[side].module, name=self.graph, level=level, naming=naming).graph

    def __str__(self) -> str:
        made = self.diff.heading() if self.changed else "no change"
        matches = "" if self.matches is None else f", matches: {self.matches}"
        return f"{self.name} on {self.graph}: {made}{matches}"


@dataclass
class _Open:
    """A running pass.

    Attributes:
        name, subsystem, hook, matches: see `PassRun`.
        owner: the graph module that it changes.
        before: the graph before it.
    """

    name: str
    subsystem: str
    hook: str
    owner: fx.GraphModule
    before: LazyCopy
    matches: int | None = None


@dataclass
class PassRecorder:
    """Records passes as they run.

    Attributes:
        limit: number of passes that inductor may run; `None` for all.
        runs: the recorded runs.
        applied: names of the passes that inductor ran or skipped, in order.
        changing: positions of those that changed a graph, from 1.
        graph: position of the graph in the capture, as text; "" before it is known.
        _open: the running passes, outermost first; `None` for one that only runs others.
        _states: the last copy of each graph module, by `id`; see `_state`.
    """

    limit: int | None = None
    runs: list[PassRun] = field(default_factory=list)
    applied: list[str] = field(default_factory=list)
    changing: list[int] = field(default_factory=list)
    graph: str = ""
    _open: list[_Open | None] = field(default_factory=list)
    _states: dict[int, tuple[Any, LazyCopy]] = field(default_factory=dict)

    def skips(self, function: Any, name: str) -> bool:
        """Count a pass that no other pass runs. Return True if it is beyond the limit."""
        if self._running() or torch_private.runs_others(function):
            return False
        self.applied.append(_name_of(function, name)[0])
        if self.limit is None or name.startswith(NEEDED):
            return False
        return len(self.applied) > self.limit

    def enter(self, gm: fx.GraphModule, name: str, subsystem: str, function: Any) -> None:
        """Note that a pass begins; see `torch_private.on_passes`."""
        if function is not None and torch_private.runs_others(function):
            self._open.append(None)
            return
        own_name, hook = _name_of(function, name)
        self._open.append(_Open(own_name, subsystem, hook, gm, self._state(gm)))

    def leave(self, failed: bool) -> None:
        """Record the run of the pass that ends; see `torch_private.on_passes`.

        A pass that raised is not recorded.
        """
        closed = self._open.pop()
        if closed is None or failed:
            return
        outer = self._running()
        after = self._state(closed.owner)
        if not outer and after is not closed.before:
            self.changing.append(len(self.applied))
        self.runs.append(
            PassRun(
                closed.name,
                closed.subsystem,
                closed.hook,
                parent=outer[-1].name if outer else "",
                graph=self.graph or self._early_graph([closed, *reversed(outer)]),
                changed=after is not closed.before,
                matches=closed.matches,
                modules=(closed.before, after),
            )
        )

    def _early_graph(self, running: Sequence[_Open]) -> str:
        """Return the name of a graph that is not yet split into forward and backward.

        Args:
            running: the pass, and those that run it.
        """
        early = any((run.hook or run.subsystem).startswith("pre_grad") for run in running)
        return "dynamo" if early else "joint"

    def matching(self, apply: Callable[[], int]) -> int:
        """Apply patterns, and return the number of matches.

        The matches are added to the run of the patterns, and to the passes that apply them.
        """
        earlier = len(self.runs)
        count = apply()
        # `apply` runs the patterns inside `enter` and `leave`, which record the last run.
        if len(self.runs) > earlier:
            self.runs[-1] = replace(self.runs[-1], matches=count)
        for outer in self._running():
            outer.matches = (outer.matches or 0) + count
        return count

    def _running(self) -> list[_Open]:
        """Return the running passes, outermost first, without those that only run others."""
        return [each for each in self._open if each is not None]

    def _state(self, gm: fx.GraphModule) -> LazyCopy:
        """Return a copy of a module; the last one, if its graph has not changed since."""
        known, now = self._states.get(id(gm)), LazyCopy(gm)
        if known is None or [*known[1].calls.items()] != [*now.calls.items()]:
            self._states[id(gm)] = known = (gm, now)  # keeps the id in use
        return known[1]


def _name_of(function: Any, name: str) -> tuple[str, str]:
    """Return the name of a pass, and its hook, "" for torch's own passes."""
    if function is None or name not in torch_private.HOOKS.values():
        return name, ""
    # torch runs its own `group_batch_fusion_passes` under the name of a user's hook.
    function = torch_private.unwrapped_pass(function)
    own_name = getattr(function, "pass_name", None) or getattr(function, "__name__", None)
    hook = "" if torch_private.is_own_pass(function) else name
    return str(own_name or type(function).__name__), hook


def named_runs(runs: Sequence[PassRun], graphs: Sequence[str]) -> tuple[PassRun, ...]:
    """Return the runs with the names of their graphs, which are positions so far."""
    return tuple(
        replace(run, graph=graphs[int(run.graph)])
        if run.graph.isdecimal() and int(run.graph) < len(graphs)
        else run
        for run in runs
    )
