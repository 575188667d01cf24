"""A guard's new value is read without running user code, and shown without addresses."""

from __future__ import annotations

import contextlib
import enum
import gc
import inspect
import sys
import weakref
from collections import defaultdict
from functools import partial
from types import CellType, ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from pytest_torchgraph import FailedGuard, watch
from pytest_torchgraph.watching.guard_text import GuardLine, parse
from pytest_torchgraph.watching.guard_values import (
    UNKNOWN,
    attribute,
    backend_in_words,
    describe_value,
    length,
    read,
    read_parts,
    user_function,
)


class Trap:
    """Fails if any code of this class runs."""

    plain = 3

    def __init__(self) -> None:
        vars(self)["own"] = 5
        vars(self)["shadowed"] = 6

    @property
    def shadowed(self) -> int:
        raise RuntimeError("a property ran")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("__getattr__ ran")

    def __len__(self) -> int:
        raise RuntimeError("__len__ ran")

    def __getitem__(self, key: Any) -> Any:
        raise RuntimeError("__getitem__ ran")

    def __repr__(self) -> str:
        raise RuntimeError("__repr__ ran")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("__eq__ ran")

    __hash__ = None  # type: ignore[assignment]


class Slotted:
    __slots__ = ("empty", "x")

    def __init__(self) -> None:
        self.x = 4


class Loud(dict[str, int]):
    def __getitem__(self, key: str) -> int:
        raise RuntimeError("__getitem__ ran")

    def __len__(self) -> int:
        raise RuntimeError("__len__ ran")


class Colour(enum.Enum):
    RED = 1


def inner(k: int) -> Any:
    return lambda: k


LOCALS = {
    "trap": Trap(),
    "slotted": Slotted(),
    "loud": Loud(a=1),
    "made": defaultdict(lambda: 1 / 0),
    "parts": [1, (2, 3)],
    "table": {"a": 1, 2: "b"},
    "net": nn.Sequential(nn.Linear(2, 2)),
    "closed": inner(7),
    "unfilled": CellType(),
    "x": torch.ones(2, 3),
}
NAMES = {**LOCALS, "G": {"SCALE": 2}}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("trap.own", 5),
        ("trap.plain", 3),
        ("trap.shadowed", UNKNOWN),
        ("trap[0]", UNKNOWN),
        ("slotted.x", 4),
        ("slotted.empty", UNKNOWN),
        ("loud['a']", 1),
        ("made['a']", UNKNOWN),
        ("parts[1][0]", 2),
        ("parts[9]", UNKNOWN),
        ("table[2]", "b"),
        ("list(dict.keys(table))[0]", "a"),
        ("net._modules['0'].in_features", 2),
        ("net.training", True),
        ("type(trap)", Trap),
        ("closed.__closure__[0].cell_contents", 7),
        ("unfilled.cell_contents", UNKNOWN),
        ("G['SCALE']", 2),
        ("nothing", UNKNOWN),
        ("trap()", UNKNOWN),
        ("len(trap)", UNKNOWN),
        ("len(loud)", 1),
        ("x.size()[1]", 3),
        ("x.requires_grad", UNKNOWN),
        ("not valid at", UNKNOWN),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_guard_value_read_runs_no_user_code(expression: str, value: Any) -> None:
    found = read(expression, NAMES)
    assert found is value or (type(found) is type(value) and found == value)
    assert LOCALS["made"] == {}


# Python prints no number of more than 4,300 digits; from 3.14 on, reprlib says so.
LONG = "a int"
if sys.version_info >= (3, 14):
    LONG = "<int instance with roughly 5001 digits (limit at 4300)>"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (None, "None"),
        ("a\nb", "'a\\nb'"),
        ("x" * 70, f"'{'x' * 27}...{'x' * 28}'"),
        (10**50, "100000000000000000...0000000000000000000"),
        (10**5000, LONG),
        (torch.float16, "torch.float16"),
        (Colour.RED, "Colour.RED"),
        (Trap(), f"a {__name__}.Trap"),
        (Trap, f"{__name__}.Trap"),
        (torch.ones(2), "a torch.Tensor"),
        (Loud(a=1), f"a {__name__}.Loud of 1 item"),
        ([1, "a"], "[1, 'a']"),
        ({3, 1}, "{1, 3}"),
        ([Trap()], "a list of 1 item"),
        (list(range(9)), "[0, 1, 2, 3, 4, 5, ...]"),
        ({"a": 1}, "{'a': 1}"),
        (torch.cos, "torch.cos"),
        (UNKNOWN, ""),
    ],
    ids=lambda each: type(each).__name__,
)
def test_guard_value_is_abbreviated(value: Any, text: str) -> None:
    assert describe_value(value) == text


ran: list[str] = []


def logged(name: str) -> Any:
    return property(lambda _: ran.append(name))


class Meta(type):
    __module__ = logged("__module__")  # type: ignore[assignment]

    def __getattr__(cls, name: str) -> Any:
        ran.append(name)
        raise AttributeError(name)

    def __eq__(cls, other: object) -> bool:
        # Since Python 3.12, `inspect` looks classes up in a cache.
        if sys._getframe(1).f_code.co_filename != inspect.__file__:
            ran.append("__eq__")
        return False

    __hash__ = type.__hash__


class OfMeta(metaclass=Meta):
    def __call__(self) -> None: ...


class Pretending:
    __class__ = logged("__class__")  # type: ignore[assignment]


class Intercepting:
    def __getattribute__(self, name: str) -> Any:
        ran.append(name)
        return object.__getattribute__(self, name)


class OtherModule(ModuleType):
    __name__ = logged("__name__")


class OtherPartial(partial[Any]):
    func = logged("func")  # type: ignore[assignment]


class Formatted:
    def __format__(self, _: str) -> str:
        ran.append("__format__")
        return ""


class OfNoModule:
    __module__ = Formatted()  # type: ignore[assignment]


class Holding:
    def __init__(self, x: Any) -> None:
        self.x = x


class Config:
    compiler_name = "own"

    def __init__(self, config: Any) -> None:
        self.config = config


class Sized:
    def __len__(self) -> int:
        ran.append("__len__")
        return 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (OfMeta(), f"a {__name__}.OfMeta"),
        (OfMeta, f"{__name__}.OfMeta"),
        (Pretending(), f"a {__name__}.Pretending"),
        (Intercepting(), f"a {__name__}.Intercepting"),
        (OtherModule("other"), f"a {__name__}.OtherModule"),
        (OtherPartial(len), "functools.partial of len"),
        (OfNoModule(), "a OfNoModule"),
        ([Pretending()], "a list of 1 item"),
    ],
    ids=lambda each: type.__getattribute__(type(each), "__name__"),
)
def test_guard_value_of_any_type_runs_no_user_code(value: Any, text: str) -> None:
    ran.clear()
    assert describe_value(value) == text
    assert length(value) == (1 if type(value) is list else UNKNOWN)
    assert attribute(value, "x") is UNKNOWN
    assert attribute(Holding(value), "x") is value
    assert read("x['a']", {"x": value}) is UNKNOWN
    assert read("list(dict.keys(x))", {"x": value}) is UNKNOWN
    user_function(value)
    assert backend_in_words(Config(value)) == f"torch.compile(backend='own', options={text})"
    assert ran == []


def test_guard_value_of_a_partial_is_its_function() -> None:
    assert user_function(OtherPartial(inner)) is inner


def test_options_of_a_backend_are_shown_if_there_are_any() -> None:
    assert backend_in_words(Config({})) == "torch.compile(backend='own')"
    assert backend_in_words(Config({"a": 1})) == "torch.compile(backend='own', options={'a': 1})"
    text = f"torch.compile(backend='own', options=a {__name__}.Sized)"
    ran.clear()
    assert backend_in_words(Config(Sized())) == text
    assert ran == []


def test_guard_value_of_a_function_has_its_line() -> None:
    line = inner.__code__.co_firstlineno
    assert describe_value(inner) == f"inner (tests/watching/test_guard_values.py:{line})"


def test_backend_object_is_shown_without_an_address() -> None:
    class Backend:
        def __call__(self, module: Any, inputs: Any) -> Any:
            return module.forward

    compiled = torch._TorchCompileWrapper(Backend(), None, None, None)
    assert "0x" in compiled.compiler_name
    assert "0x" not in backend_in_words(compiled)


# -- torch's message -------------------------------------------------------------------------------


def test_guard_check_with_a_comment_sign_is_parsed() -> None:
    text = parse("0/1: self.mode == 'a # b'   # if self.mode == 'x  # y':  # net.py:3 in forward")
    assert text.check == "self.mode == 'a # b'"
    assert text.lines == (GuardLine("net.py", 3, "forward", "if self.mode == 'x  # y':"),)


def test_guard_with_only_a_torch_line_has_no_user_line() -> None:
    text = parse("0/0: s == 0.5  # (_dynamo/output_graph.py:12 in remove)")
    assert text.lines == ()
    assert text.hints == ("in torch: _dynamo/output_graph.py:12 in remove",)
    text = parse("0/0: s == 0.5  # (x * s).sum()  # net.py:50 in forward")
    assert [line.code for line in text.lines] == ["(x * s).sum()"]


def test_guard_text_of_unknown_format_is_kept() -> None:
    text = parse("something new (of a kind)  # that nobody knows (yet)")
    assert (text.compile_id, text.check) == ("", "something new (of a kind)")
    assert text.hints == ("that nobody knows (yet)",)


def test_all_guards_of_one_text_are_parsed() -> None:
    text = parse(
        "0/0: a == 1  # a + b  # net.py:3 in forward; b == 2  # a + b  # net.py:4 in forward"
    )
    assert text.lines == (GuardLine("net.py", 3, "forward", "a + b"),)
    assert text.hints == ("b == 2  # a + b  # net.py:4 in forward",)


# -- in a watch ------------------------------------------------------------------------------------


class Guarded(nn.Module):
    """Makes Dynamo guard on `held.value`, an attribute of an object with traps."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held(2)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.held.value


class Held:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        raise RuntimeError("__repr__ ran")


@pytest.mark.slow("compiles many times")
def test_guard_keeps_no_user_object_alive() -> None:
    model = Guarded()
    compiled = torch.compile(model, backend="eager")
    with watch() as seen:
        compiled(torch.ones(3))
        model.held = Held(7)
        x = torch.ones(3)
        compiled(x)
        alive = weakref.ref(x), weakref.ref(model.held)
    (guard,) = seen.recompiles[0].failed_guards
    assert (guard.was, guard.now) == ("2", "7")
    del x, model, compiled
    torch._dynamo.reset()
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_guard_fields() -> None:
    model = Guarded()
    compiled = torch.compile(model, backend="eager")
    with watch() as seen:
        compiled(torch.ones(3))
        model.held.value = 7
        compiled(torch.ones(3))
    (guard,) = seen.recompiles[0].failed_guards
    assert isinstance(guard, FailedGuard)
    line = Guarded.forward.__code__.co_firstlineno + 1
    assert (guard.compile_id, guard.words) == ("0/0", "self.held.value: was 2, is 7")
    assert guard.guard == "self.held.value == 2"
    assert guard.source is not None
    assert (guard.source.line, guard.source.code) == (line, "return x * self.held.value")
    assert [frame.line for frame in guard.stack] == [line]
    assert str(guard).splitlines()[0] == "0/0: self.held.value: was 2, is 7"


def test_a_guard_of_torchs_own_code_has_no_line_of_the_users() -> None:
    compiled = torch.compile(nn.Sequential(nn.Linear(3, 3)), backend="eager", dynamic=False)
    with watch() as seen:
        compiled(torch.ones(2, 3))
        compiled(torch.ones(4, 3))
    (guard,) = seen.recompiles[0].failed_guards
    assert guard.source is None
    assert {frame.file.partition("/")[0] for frame in guard.stack} == {"torch"}
    assert f"made at {guard.stack[-1]}" in str(guard)


def field(x: Tensor, pair: Any) -> Tensor:
    return x * pair.size


L = [1]


def of_a_global(x: Tensor) -> Tensor:
    return x * len(L)


def member(x: Tensor, parts: Any) -> Tensor:
    return x * 2 if 2 in parts else x * 3


class Pair(NamedTuple):
    name: str
    size: int


@pytest.mark.parametrize(
    ("function", "before", "after", "words"),
    [
        (lambda x, parts: x * 2 if parts else x * 3, [], [1, 2], "not parts (parts is [1, 2])"),
        (
            lambda x, table: x * table["a"]["b"],
            {"a": {"b": 2}},
            {"a": {"c": 2}},
            "table['a']: key 'b' is missing, the keys are ['c']",
        ),
        (lambda x, k: x * k, float("nan"), 2.0, "k is 2.0)"),
        (lambda x, k: x + 1 if k is None else x * 2, None, "yes", "argument k: was None, is 'yes'"),
        (field, Pair("a", 2), Pair("a", 9), "pair.size: was 2, is 9"),
        (member, {1, 2}, {1, 2, 3}, "argument parts: was {1, 2}, is {1, 2, 3}"),
    ],
    ids=["not", "key", "nan", "none", "field", "set"],
)
def test_guard_new_value_is_correct(function: Any, before: Any, after: Any, words: str) -> None:
    compiled = torch.compile(function, backend="eager")
    with watch() as seen:
        compiled(torch.ones(3), before)
        with contextlib.suppress(KeyError):
            compiled(torch.ones(3), after)
    (recompile,) = seen.recompiles
    (reason,) = recompile.reasons
    assert reason.endswith(words)


def test_guard_part_is_read_whatever_the_operators() -> None:
    text = "2 <= x.size()[0] <= parts[0] + unknown.size"
    assert read_parts(text, NAMES) == {"x.size()[0]": 2, "parts[0]": 1}
    assert read_parts("tensor 'x' is prose", NAMES) == {}


def test_guard_on_a_global_of_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile(of_a_global, backend="eager")
    with watch() as seen:
        compiled(torch.ones(3))
        monkeypatch.setitem(globals(), "L", [1, 2])
        compiled(torch.ones(3))
    assert seen.recompiles[0].reasons == ("global L: length was 1, is 2",)


def test_guard_of_a_function_with_any_closure_runs_only_code_that_dynamo_runs() -> None:
    other, compiled_for = Pretending(), OfMeta()

    @torch.compiler.disable
    def unseen() -> None:
        assert other is not compiled_for

    def function(x: Tensor, k: int, call: bool = False) -> Tensor:
        if call:
            unseen()
            assert other is not compiled_for
        return x * k

    counted = []
    for context in (contextlib.nullcontext(), watch()):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="eager", dynamic=False)
        compiled(torch.ones(3), 1)
        ran.clear()
        with context as seen:
            compiled(torch.ones(3), 2)
        counted.append([*ran])
    assert seen is not None
    assert "argument k" in seen.recompiles[0].reasons[0]
    assert counted[0] == counted[1]


def test_equal_guard_messages_are_reported_once() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    with watch() as seen:
        for x in (torch.ones(2), torch.ones(3), nn.Parameter(torch.ones(4))):
            compiled(x)
    last = seen.recompiles[-1]
    words = last.reasons[0]
    assert words.startswith("argument x: type was ")
    assert words.endswith(", is torch.nn.parameter.Parameter")
    assert last.reasons == (words, words)
    assert str(last).splitlines()[0].count(words) == 1


def test_error_in_a_guard_read_does_not_break_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("ours")

    monkeypatch.setattr("pytest_torchgraph.torch_private.leaf_guards", fail)
    compiled = torch.compile(lambda x: x * 2, backend="eager")
    with watch() as seen:
        compiled(torch.ones(3))
        assert compiled(torch.ones(3, 3)).sum() == 18
    (recompile,) = seen.recompiles
    assert recompile.reasons == ("argument x: rank was 1, is 2",)
