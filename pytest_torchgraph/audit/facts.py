"""Facts about one test as plain data: counts, and causes with a stable identity.

A cause is the same in every test, run and checkout. Its identity contains the text of the code line
but not the line number, which changes if lines are inserted above it. Nor does it contain the
reason for a recompile, because torch's words for the reason depend on what ran before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from ..files import decode

CauseKind = Literal["break", "recompile", "limit", "bypass", "eager", "nothing"]
"""Kinds of causes.

- `break`: a graph break.
- `recompile`: code was compiled again.
- `limit`: code reached the recompile limit and ran eagerly from then on.
- `bypass`: no cache of torch.compile can store the graph, so every process compiles it anew.
- `eager`: a call of a compiled callable ran eagerly, although the test compiled something.
- `nothing`: a test called a compiled callable, or only `torch.compile`, and nothing was compiled
  or ran compiled.
"""


_PLACE = re.compile(r"(.+):(\d+) (.+)")


class CodePlace(NamedTuple):
    """A line of code. `file` is "" if the location is unknown."""

    file: str = ""
    line: int = 0
    function: str = ""

    @classmethod
    def parse(cls, text: str) -> CodePlace:
        """Parse `file:line function`, the format in facts."""
        match = _PLACE.fullmatch(text)
        return cls(match[1], int(match[2]), match[3]) if match else cls()

    @property
    def shown(self) -> str:
        """The location as `file:line in function`; without a file, the function."""
        return f"{self.file}:{self.line} in {self.function}" if self.file else self.function


@dataclass(frozen=True, slots=True)
class Cause:
    """An event in a test, with its count.

    Attributes:
        kind: see `CauseKind`.
        file, function: the location; "" for a cause without one. The file is relative to pytest's
            rootdir.
        text: Dynamo's class of the graph break, the op that a cache refuses, or the reason; ""
            for a recompile.
        code: the line of code of a graph break or a refused op; "" for other kinds.
        line: the line number of `code`, or else of the function. Not part of the identity.
        count: the number of occurrences.
        shared: True if the cause exists only because another test had compiled the code before. In
            another test order, the cause disappears. Not part of the identity.
        guard: for a recompile, the change that made the guard fail, for example
            `self.calls: was 0, is 1`; "" if unknown. Not part of the identity, because it depends
            on what ran before.
        guard_place: the line that installed the guard, as `file:line function`; "" if there is
            none. Not part of the identity.
    """

    kind: CauseKind
    file: str
    function: str
    text: str
    code: str
    line: int
    count: int = 1
    shared: bool = False
    guard: str = ""
    guard_place: str = ""

    @property
    def key(self) -> str:
        """Identity of the cause, as the baseline stores it."""
        return " | ".join(filter(None, (self.kind, self.file, self.function, self.text, self.code)))

    @property
    def place(self) -> CodePlace:
        """Location of the cause."""
        return CodePlace(self.file, self.line, self.function)


class LeakedSetting(NamedTuple):
    """A setting that a test changed and did not restore.

    Attributes:
        name: the full name of the setting, for example `torch._dynamo.config.suppress_errors`.
        before, after: the values, as text.
        test: the id of the first test that left the setting changed.
    """

    name: str
    before: str
    after: str
    test: str


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """Facts about one compiled function or module in a test.

    Attributes:
        key: the identity of the function: the file, relative to pytest's rootdir, and the name.
        line: the first line of the function. Not part of the identity.
        called: True if the test itself called the function as a compiled callable. False if Dynamo
            compiled the function by itself after a graph break, or if only fixtures of wider scope
            called it.
        ops: the op counts of the graphs compiled for the function, without duplicates.
        backends: the backends that compiled the function.
        backward: True if a backward of one of its graphs ran.
        nested: see `TestFacts`.
    """

    key: str
    line: int = 0
    called: bool = False
    ops: tuple[int, ...] = ()
    backends: tuple[str, ...] = ()
    backward: bool = False
    nested: bool = False

    @property
    def place(self) -> CodePlace:
        """First line of the function."""
        file, _, name = self.key.partition(" | ")
        return CodePlace(file, self.line, name)


@dataclass(frozen=True, slots=True)
class TestFacts:
    """Facts about one test, from the setup of its fixtures to their teardown.

    Attributes:
        calls: the number of calls of compiled callables.
        graphs: the number of frames compiled into a graph.
        backwards: the number of backward graphs that ran.
        ops: the number of ops in the graphs, as Dynamo counts them.
        seconds: the compile time.
        compiles: True if anything was compiled, or if code compiled earlier ran.
        causes: the problems found.
        frames: the compiled code, each frame as `file:line function`.
        callables: the compiled callables that were called, each as `file:line name`.
        backends: the names of the backends of these callables.
        shared: True if the test depends on earlier tests. The test ran or recompiled code that
            another test had compiled first, or it set up a fixture of wider scope that uses
            compiled code.
        nested: True if Dynamo resumed inside called functions (`nested_graph_breaks`). Without this
            setting, Dynamo meets a break in a called function once per caller, and compiles code
            shared by two callers only once, so the counts of breaks and ops differ.
        eager_calls: the number of calls that ran no compiled code, because they ran eagerly or
            raised.
        frame_seconds: the compile time of each frame, in seconds.
        functions: the facts about each compiled function.
    """

    __test__ = False  # pytest would collect a class named Test*

    calls: int = 0
    graphs: int = 0
    backwards: int = 0
    ops: int = 0
    seconds: float = 0.0
    compiles: bool = False
    causes: tuple[Cause, ...] = ()
    frames: tuple[str, ...] = ()
    callables: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    shared: bool = False
    nested: bool = False
    eager_calls: int = 0
    frame_seconds: tuple[float, ...] = ()
    functions: tuple[FunctionFacts, ...] = ()

    @property
    def uses_compile(self) -> bool:
        """True if the test called `torch.compile` or a compiled callable."""
        return bool(self.calls or self.graphs or self.causes)

    @property
    def called(self) -> tuple[str, ...]:
        """Keys of the compiled callables that the test itself called."""
        return tuple(function.key for function in self.functions if function.called)

    def place_of(self, cause: Cause | None) -> CodePlace:
        """Return the location of a cause, else of the code that the test calls first."""
        if cause is not None and cause.file:
            return cause.place
        return CodePlace.parse((self.callables or self.frames or ("",))[0])

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON-compatible values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TestFacts:
        """Restore the facts from `to_json`, before or after a round trip through JSON.

        Raises:
            TypeError, ValueError: if the values are malformed.
        """
        facts: TestFacts = decode(cls, values)
        return facts
