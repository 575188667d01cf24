"""What one test compiled, as plain data: counts, and causes with an identity that is stable.

A cause is the same one in another test, run and checkout. The number of its line is not part of
what identifies it, since lines are inserted above; the text of the line is. Neither is the reason
for a recompilation, whose words depend on what ran before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

CauseKind = Literal["break", "recompile", "limit", "bypass", "eager", "nothing"]
"""What happened.

- `break`: a graph break.
- `recompile`: code was compiled again.
- `limit`: code was compiled too often, and ran eagerly from then on.
- `bypass`: a graph is in none of torch.compile's caches, and is compiled anew in every process.
- `eager`: a call of a compiled callable ran eagerly, though the test compiled something.
- `nothing`: a test called a compiled callable, or `torch.compile` alone, and nothing was compiled
  or ran compiled.
"""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that happened in a test, how often it did.

    Attributes:
        kind: see `CauseKind`.
        file, function: where; "" for what has no place. The file is relative to pytest's rootdir.
        text: Dynamo's class of graph breaks, the op that a cache refuses, or the reason; "" for a
            recompilation.
        code: the line of code at a graph break or a refused op, "" for all others.
        line: its number, or that of the function. Not part of the identity.
        count: how often.
        shared: whether it happened because another test had compiled the code before: it is not
            there in another order of the tests. Not part of the identity.
        guard: of a recompilation, what changed, as `self.calls: was 0, is 1`; "" where that is not
            known. Not part of the identity: it depends on what ran before.
        guard_place: the line that made that guard, as `file:line function`; "" for none. Not part
            of the identity.
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
        """What identifies it, as the baseline has it."""
        return " | ".join(filter(None, (self.kind, self.file, self.function, self.text, self.code)))


class SettingLeft(NamedTuple):
    """A setting that a test changed, and that nobody put back.

    Attributes:
        name: its full name, as `torch._dynamo.config.suppress_errors`.
        before, after: the values, as text.
        test: the id of the first test that left it so.
    """

    name: str
    before: str
    after: str
    test: str


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """What a test did with one function or module that is compiled.

    Attributes:
        key: its identity: the file, relative to pytest's rootdir, and the name.
        line: where it begins. Not part of the identity.
        called: whether the test itself called it as a compiled callable. A function that Dynamo
            compiles by itself behind a graph break, and what fixtures of wider scope call, is not.
        ops: the number of ops of each graph that was compiled here, each number once.
        backends: the backends that it was given to.
        backward: whether a backward of one of its graphs ran.
        nested: see `TestFacts`.
    """

    key: str
    line: int = 0
    called: bool = False
    ops: tuple[int, ...] = ()
    backends: tuple[str, ...] = ()
    backward: bool = False
    nested: bool = False

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> FunctionFacts:
        """The facts of what `TestFacts.to_json` gave."""
        lists = {name: tuple(values[name]) for name in ("ops", "backends")}
        return cls(**{**values, **lists})

    @property
    def place(self) -> str:
        """The place, as `file:line name`."""
        file, _, name = self.key.partition(" | ")
        return f"{file}:{self.line} {name}"


@dataclass(frozen=True, slots=True)
class TestFacts:
    """What one test compiled, from the setup of its fixtures to their teardown.

    Attributes:
        calls: how often compiled callables were called.
        graphs: how many frames were compiled into a graph.
        backwards: how many backward graphs ran.
        ops: how many ops the graphs hold, as Dynamo counts them.
        seconds: how long compiling took.
        compiles: whether anything was compiled, or ran that had been compiled before.
        causes: what went wrong.
        frames: the code that was compiled, each as `file:line function`.
        callables: the compiled callables that were called, each as `file:line name`.
        backends: the names of their backends.
        shared: whether the test ran code, or compiled code again, that another test had compiled
            first, or set up a fixture of wider scope that uses compiled code: what it does depends
            on the tests before it.
        nested: whether Dynamo resumed inside of called functions (`nested_graph_breaks`). Where it
            does not, a break in a called function is met once for each caller, and code that two
            of them call is compiled once: counts of breaks and ops are others.
        eager_calls: how many of the calls ran no compiled code: they ran eagerly, or raised.
        frame_seconds: how long compiling each of the frames took.
        functions: what it did with each function that is compiled.
    """

    __test__ = False  # the name begins as that of a test class

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
        """Whether the test called `torch.compile`, or anything that was given to it."""
        return bool(self.calls or self.graphs or self.causes)

    @property
    def called(self) -> tuple[str, ...]:
        """The keys of the compiled callables that the test itself called."""
        return tuple(each.key for each in self.functions if each.called)

    def to_json(self) -> dict[str, Any]:
        """The facts as values that json can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TestFacts:
        """The facts of what `to_json` gave, also after a way through json."""
        made: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list | tuple) else value
            for name, value in values.items()
        }
        made["causes"] = tuple(Cause(**cause) for cause in values["causes"])
        made["functions"] = tuple(map(FunctionFacts.from_json, values["functions"]))
        return cls(**made)
