"""Every recompile is reported, with its guard in words."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, guard_int
from torch_releases import skip_before
from watching import recompile_cases
from watching.recompile_cases import Net
from watching.recompile_kinds import Call, called, ones, under

from pytest_torchgraph import Capture, CaptureError, capture, steady, watch
from pytest_torchgraph.watching.guard_text import check_of
from pytest_torchgraph.watching.guards import details, failed_guard, observe_guard

FILE = str(Path(recompile_cases.__file__).relative_to(Path.cwd()))


def watched(target: Any, *calls: Call, backend: str = "eager", **options: Any) -> Capture:
    function = torch.compile(target, backend=backend, **options)
    with watch() as seen:
        for call in calls:
            call(function)
    return seen


def test_repeated_call_does_not_recompile() -> None:
    seen = watched(recompile_cases.doubled, *[under(torch.no_grad, ones(3))] * 2)
    assert seen.recompiles == ()
    seen.assert_no_recompiles()
    seen.assert_recompiles(max=0)
    with pytest.raises(AssertionError, match=r"\Arecompilations: expected 1, found none\Z"):
        seen.assert_recompiles(1)
    with pytest.raises(TypeError, match=r"assert_recompiles\(\) checks nothing: pass count="):
        seen.assert_recompiles()
    with pytest.raises(ValueError, match="missing count for device 'cpu'"):
        seen.assert_recompiles({"cuda": 0})
    none = seen.only(function="tripled")
    for check in (none.assert_no_recompiles, none.assert_no_graph_breaks):
        with pytest.raises(AssertionError, match="that matches function='tripled' was called insi"):
            check()


def test_recompile_names_all_guards_latest_compilation_first() -> None:
    seen = watched(
        recompile_cases.doubled, *(called(x) for x in (ones(3), ones(3).double(), ones(3, 3).int()))
    )
    assert [recompile.reasons for recompile in seen.recompiles] == [
        ("argument x: dtype was Float, is Double",),
        ("argument x: dtype was Double, is Int", "argument x: dtype was Float, is Int"),
    ]
    with pytest.raises(AssertionError, match=r"dtype was Double, is Int\n"):
        seen.assert_recompiles(max=1)


def by_inner_function(model: torch.nn.Module) -> Callable[..., Any]:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return model(x)

    return lambda x: inner(x)


def test_recompile_by_a_float_has_its_name_and_a_hint() -> None:
    model = recompile_cases.Configured()
    step = torch.compile(by_inner_function(model), backend="eager")
    with watch() as seen:
        for model.scale in (1.5, 2.5, 3.5):
            step(ones(3))
    found = seen.recompiles[0].failed_guards[0]
    assert (found.words, found.was, found.now) == ("model.scale: was 1.5, is 2.5", "1.5", "2.5")
    assert found.hint.startswith("keep model.scale as a tensor (torch.tensor(...), or a ")
    assert "\n" not in found.hint
    assert len(seen.recompiles) == 1
    with watch() as seen:
        for scale in (1.5, 2.5):
            model.scale = torch.tensor(scale)  # type: ignore[assignment]
            step(ones(3))
    assert len(seen.recompiles) == 1  # only the change from a float to a tensor
    assert "tensor" not in seen.recompiles[0].failed_guards[0].hint


SYMBOL = "torch.compile makes an int symbolic once it has seen a second value"


def test_recompile_by_an_int_has_a_hint_if_it_may_become_dynamic() -> None:
    calls = [called(ones(3), scale) for scale in (2, 3, 4)]
    seen = watched(recompile_cases.scaled, *calls)
    (recompile,) = seen.recompiles
    assert recompile.failed_guards[0].hint.startswith(SYMBOL)
    torch._dynamo.reset()
    batches = [called({"x": ones(3), "n": n}) for n in (2, 3, 4)]
    (recompile,) = watched(lambda b: b["x"] * b["n"], *batches).recompiles
    assert recompile.failed_guards[0].hint.startswith(SYMBOL)
    torch._dynamo.reset()
    watched(recompile_cases.scaled, *calls, dynamic=True).assert_no_recompiles()
    torch._dynamo.reset()
    seen = watched(recompile_cases.from_table, *calls)  # its code needs the int's value
    hints = [[guard.hint for guard in recompile.failed_guards] for recompile in seen.recompiles]
    assert hints[0][0].startswith("scale was dynamic and was fixed to 3 at ")
    assert "return x * {2: 20" in hints[0][0]
    assert hints[0][0].endswith("or warm up with each value")
    assert not any(SYMBOL in hint for hint in hints[1])
    torch._dynamo.reset()
    seen = watched(recompile_cases.scaled, *calls, dynamic=False)
    assert {guard.hint for recompile in seen.recompiles for guard in recompile.failed_guards} == {
        "each compiles separately: use one of them, or warm up with each"
    }


def test_recompile_by_a_dynamic_int_that_became_1_has_a_hint() -> None:
    def pooled(index: Tensor, size: int) -> Tensor:
        return torch.zeros(size).index_add(0, index, ones(5))

    index = torch.zeros(5, dtype=torch.long)
    calls = [called(index, size) for size in (2, 3, 1, 4, 1)]
    seen = watched(pooled, *calls, backend="aot_eager")
    hints = [
        "\n".join(guard.hint for guard in recompile.failed_guards) for recompile in seen.recompiles
    ]
    assert SYMBOL in hints[0]
    assert "does not work for 0 and 1: warm up with 0" in hints[1]
    assert SYMBOL not in hints[1]
    assert len(hints) == 2


def test_recompile_by_a_value_of_a_resumed_frame_is_explained() -> None:
    def read(x: Tensor) -> Tensor:
        return x.sum().item() * x

    seen = watched(read, *(called(ones(3) * 1.2345678 * n) for n in (1, 2)))
    (found,) = (guard for recompile in seen.recompiles for guard in recompile.failed_guards)
    assert found.words.startswith("argument ___stack0: was ")
    assert found.was in found.guard, "a long number was removed as an id"
    assert "is a value from before a graph break" in found.hint


def test_the_second_step_of_an_optimizer_is_explained() -> None:
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    step = torch.compile(optimizer.step, backend="eager")
    with watch() as seen:
        for _ in range(3):
            net(ones(2)).sum().backward()
            step()
    (recompile,) = seen.recompiles
    assert "warm up with two" in recompile.failed_guards[0].hint


def test_recompile_by_a_stride_has_a_hint() -> None:
    tensors = (ones(3, 4), ones(4, 3).t())
    (recompile,) = watched(recompile_cases.doubled, *map(called, tensors)).recompiles
    assert recompile.failed_guards[0].hint == (
        "call x.contiguous() before each call (or, for images, with "
        "memory_format=torch.channels_last): then equal sizes have equal strides"
    )
    torch._dynamo.reset()
    helped = (called(tensor.contiguous()) for tensor in tensors)
    watched(recompile_cases.doubled, *helped).assert_no_recompiles()


def test_guard_of_torchs_own_line_and_of_a_float_graph_input() -> None:
    text = "0/0: s0 == 4  # (_dynamo/output_graph.py:12 in remove)"
    guard = failed_guard(observe_guard(text, None), (), (), {})
    assert "    in torch: _dynamo/output_graph.py:12 in remove" in list(details([guard]))
    found = check_of("___as_tensor(self._modules['1'].p).item() == 0.25")
    assert (found.was, found.source, found.read) == ("0.25", *["self._modules['1'].p"] * 2)


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("Meta", "CPU", "was a Meta tensor, is a CPU tensor"),
        ("CPU, Conjugate", "CPU", "was a conjugated view (.conj()), is none"),
        (
            "CPU, AutogradCPU",
            "CPU",
            "made or used outside torch.inference_mode, is made or used in",
        ),
        ("CPU, ADInplaceOrView", "CPU", "was made or used outside torch.inference_mode"),
        ("CPU", "CPU, AutogradCPU", "was made or used inside torch.inference_mode"),
        ("CPU, AutogradCPU", "CPU, ADInplaceOrView, AutogradCPU", "was made or used inside"),
        ("CPU, Conjugate", "CPU, AutogradCPU, Conjugate", "was made or used inside"),
        ("CPU, FuncTorchBatched", "CPU", "was inside a transform of torch.func"),
        ("CPU, Python", "CPU, AutogradCPU", "guard failed: tensor 'x' dispatch key set mismatch"),
    ],
)
def test_recompile_by_a_dispatch_key_is_told_by_what_changed(
    was: str, now: str, words: str
) -> None:
    keys = f"expected DispatchKeySet({was}), actual DispatchKeySet({now})"
    guard = observe_guard(f"0/0: tensor 'x' dispatch key set mismatch. {keys}", None)
    assert words in guard.words


def test_unknown_guard_is_shown_without_process_specific_numbers() -> None:
    for guard in (
        "0/1: ___check_obj_id(L['self'], 140222076674848), type=<class 'code'>",
        "0/1: ___check_type_id(x, 93980907862656), type=<class 'list'>",
        "0/1: ___something_new(x, 140222076674848)",
    ):
        assert not re.search(r"\d{7}", observe_guard(guard, None).words)
    assert (
        observe_guard("0/1: ___something_new(x)", None).words == "guard failed: ___something_new(x)"
    )


# -- shapes that become dynamic --------------------------------------------------------------------


def test_shape_that_becomes_dynamic_is_one_recompile() -> None:
    sizes = [(3, n) for n in (4, 5, 6, 7, 8)]
    seen = watched(recompile_cases.doubled, *(called(ones(*size)) for size in (*sizes, (4, 6))))
    recompile, of_another_size = seen.recompiles
    assert recompile.reasons == (
        "argument x: size of dim 1 was 4, is 5; the size became dynamic in compilation 0/1",
    )
    assert " became dynamic in compilation " not in str(of_another_size)
    assert seen.executions == {"0/0": 1, "0/1": 4, "0/2": 1}


def test_recompile_outside_a_range_is_named_in_words() -> None:
    seen = watched(recompile_cases.by_size, *(called(ones(n)) for n in (3, 4, 9)))
    assert seen.recompiles[1].reasons == (
        "guard failed: 2 <= x.size()[0] <= 5 (x.size()[0] is 9)",
        "argument x: size of dim 0 was 3, is 9",
    )


def test_size_fixed_by_code_has_no_mark_dynamic_hint() -> None:
    """A loop over a dimension, for which marking it as dynamic would raise."""

    def looped(given: Any) -> Tensor:
        x = given["left"]
        total = x[:, 0]
        for number in range(x.shape[1]):
            total = total + x[:, number]
        return total

    tensors = (ones(3, 4), ones(3, 5), ones(6, 5))
    first, second = watched(looped, *(called({"left": x}) for x in tensors)).recompiles
    assert "hint: dim 1 of given['left'] was dynamic and was fixed to 5 at tests/watc" in str(first)
    assert "in looped: for number in range(x.shape[1]): (in compilation 0/1)\n" in str(first)
    assert (
        "change that line, use one value (pad the input to one size), or warm up with each value"
    ) in str(first)
    assert "mark_dynamic(" not in str(first)
    assert "mark_dynamic(" in str(second), "this dimension is not fixed"
    torch._dynamo.reset()
    marked = ones(3, 4)
    torch._dynamo.mark_dynamic(marked, 1)
    with pytest.raises(ConstraintViolationError, match="specialized it to be a constant"):
        torch.compile(looped, backend="eager")({"left": marked})


def branched(x: Tensor) -> Tensor:
    x = torch.sin(x)
    return x * 2 if x.shape[0] == 5 else x


def iterated(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for row in x:
        total = total + row
    return total


def helped(x: Tensor) -> Tensor:
    return branched(x + 1)


def in_a_container(parts: dict[str, list[Tensor]]) -> Tensor:
    return branched(parts["x"][0])


@pytest.mark.parametrize(
    ("target", "name"), [(branched, "x"), (helped, "x"), (in_a_container, "parts['x'][0]")]
)
def test_dynamic_size_fixed_by_code_names_the_line(target: Any, name: str) -> None:
    sizes = [ones(size, 3) for size in (5, 7)]
    calls = [called(x if name == "x" else {"x": [x]}) for x in sizes]
    (recompile,) = watched(target, *calls, dynamic=True).recompiles
    (guard,) = recompile.failed_guards
    assert guard.words.endswith(f"{name}: size of dim 0 was 5, is 7")
    assert guard.source is not None
    if name == "x":
        assert guard.source.code == "return x * 2 if x.shape[0] == 5 else x"
    assert guard.hint.startswith(f"dim 0 of {name} was dynamic and was fixed to 5 at tests/watchi")
    assert "mark_dynamic" not in str(recompile)


@pytest.mark.slow("compiles several models")
def test_dynamic_size_fixed_in_an_earlier_watch_names_the_line() -> None:
    skip_before("2.10", "the guard of a loop is on the length of a tensor")
    function = torch.compile(branched, backend="eager", dynamic=True)
    with watch():
        function(ones(5, 3))
    with watch() as seen:
        function(ones(7, 3))
    assert "was dynamic and was fixed to 5 at" in str(seen.recompiles[0])
    function = torch.compile(iterated, backend="eager", dynamic=True)
    function(ones(5, 3))  # not watched, so the line is unknown
    with watch() as seen:
        function(ones(8, 3))
        function(ones(9, 3))
    assert "dim 0 of x was dynamic and was fixed to 8 at " in str(seen.recompiles[0])
    function = torch.compile(helped, backend="eager", dynamic=True)
    function(ones(5, 3))
    with watch() as seen:
        function(ones(7, 3))
    assert "if a line requires one size, torch raises an error that" in str(seen.recompiles[0])


def test_dynamic_size_fixed_before_a_steady_state_names_the_line() -> None:
    function = torch.compile(branched, backend="eager", dynamic=True)
    captured = steady(function, (ones(5, 3),), (ones(7, 3),))
    with pytest.raises(AssertionError, match="dim 0 of x was dynamic and was fixed to 5 at "):
        captured.assert_no_recompiles()


def test_size_fixed_by_the_compiler_has_no_mark_dynamic_hint() -> None:
    """torch 2.13 does so in inductor's lowering of the backward of a strided convolution."""

    def lowering(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        for tensor in inputs:
            if isinstance(tensor, torch.SymInt):
                guard_int(tensor // 2)
        return graph

    calls = (called(ones(n)) for n in (4, 6, 8))
    first, second = watched(recompile_cases.doubled, *calls, backend=lowering).recompiles
    assert "mark_dynamic(x, 0) before" in str(first), "the first compilation fixed nothing"
    assert "guard failed: (x.size()[0] // 2) == 3 (x.size()[0] is 8)" in str(second)
    assert "mark_dynamic(x, 0) before" not in str(second)
    assert (
        "hint: the compiler specialized this size, so mark_dynamic and dynamic=True "
        "do not help: pad the input to a few sizes, and warm up with each of them"
    ) in str(second)


# -- each reason is said in words that its reader can act on ---------------------------------------


def in_inference_mode(*size: int) -> Tensor:
    with torch.inference_mode():
        return ones(*size)


@pytest.mark.slow("further cases; a few are in every run", unless=["0", "conjugated"])
@pytest.mark.parametrize(
    ("calls", "reason", "hint"),
    [
        pytest.param(
            lambda: (called(in_inference_mode(3)), called(ones(3))),
            "argument x: was made or used inside torch.inference_mode, is made or used outside",
            "make both in the same mode",
            id="0",
        ),
        pytest.param(
            lambda: (called(ones(3) * 1j), called((ones(3) * 1j).conj())),
            "argument x: was no conjugated view, is one (.conj())",
            "call x.resolve_conj() before each call",
            id="conjugated",
        ),
        pytest.param(
            lambda: (called((ones(3) * 1j).conj().imag), called(ones(3))),
            "argument x: was a negated view (.imag of .conj()), is none",
            "call x.resolve_neg() before each call",
            id="negated",
        ),
        pytest.param(
            lambda: (called(ones(3)), lambda function: torch.vmap(function)(ones(2, 3))),
            "argument x: was outside a transform of torch.func (vmap, grad), is inside",
            "compile the transformed function",
            id="vmap",
        ),
    ],
)
def test_recompile_by_a_property_of_a_tensor_has_its_words_and_a_hint(
    calls: Callable[[], tuple[Call, ...]], reason: str, hint: str
) -> None:
    (recompile,) = watched(recompile_cases.doubled, *calls()).recompiles
    assert recompile.reasons == (reason,)
    assert hint in recompile.failed_guards[0].hint
    assert "dispatch key" not in str(recompile)


# -- arguments of decorators -----------------------------------------------------------------------


def decorated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Tensor:
        return function(*args, **kwargs)

    return wrapper


@decorated
@decorated
def scaled_by_keyword(x: Tensor, scale: Tensor, *, shift: Tensor) -> Tensor:
    return x * scale + shift


def test_recompile_in_a_decorator_has_the_names_of_the_parameters() -> None:
    calls = [
        called(*given, shift=shift)
        for given, shift in (
            ((ones(3), ones(1)), ones(1)),
            ((ones(3), ones(2, 3)), ones(1)),
            ((ones(3), ones(2, 3)), ones(4, 1, 1)),
        )
    ]
    first, second = watched(scaled_by_keyword, *calls).recompiles
    assert first.reasons == ("argument scale: rank was 1, is 2",)
    assert second.reasons[0] == "argument shift: rank was 1, is 3"
    torch._dynamo.reset()
    calls = [called(ones(size), ones(1), shift=ones(1)) for size in (3, 4)]
    (recompile,) = watched(scaled_by_keyword, *calls).recompiles
    assert "argument x: size of dim 0 was 3, is 4" in str(recompile)
    assert "call torch._dynamo.mark_dynamic(x, 0)" in str(recompile)


def test_recompile_of_a_module_of_torch_has_the_names_of_the_parameters() -> None:
    (recompile,) = watched(torch.nn.Linear(4, 4), called(ones(2, 4)), called(ones(3, 4))).recompiles
    assert "argument input: size of dim 0 was 2, is 3" in str(recompile)


# -- tensors that the first call makes -------------------------------------------------------------


class Grown:
    def __init__(self) -> None:
        self.keys: Tensor | None = None


def grown(cache: Grown, x: Tensor) -> Tensor:
    cache.keys = x if cache.keys is None else torch.cat([cache.keys, x])
    return cache.keys * 2


def test_recompile_by_a_tensor_that_the_first_call_made_has_advice_that_works() -> None:
    torch._dynamo.reset()
    function, cache = torch.compile(grown, backend="eager"), Grown()
    with watch() as seen:
        for size in (5, 2, 2, 2):
            function(cache, ones(size, 3))
    sized = [r for r in seen.recompiles if "cache.keys: size of dim 0 was 5, is 7" in str(r)]
    assert len(sized) == 1
    assert "hint: the first compilation did not use this tensor" in str(sized[0])
    assert "mark_dynamic(" not in sized[0].failed_guards[0].hint
    torch._dynamo.reset()
    function, cache = torch.compile(grown, backend="eager", dynamic=True), Grown()
    with watch() as seen:
        for size in (5, 2, 2, 2):
            function(cache, ones(size, 3))
    assert len(seen.recompiles) == 1, "from None to a tensor"


def test_recompiles_are_listed_with_each_guard_once() -> None:
    calls = [called(ones(size)) for size in (2, 3, 4, 5)]
    seen = watched(recompile_cases.doubled, *calls, dynamic=False)
    with pytest.raises(AssertionError) as error:
        seen.assert_no_recompiles()
    lines = str(error.value).splitlines()
    assert [line for line in lines if "guard of" in line] == [
        f"      guard of 0/{number}: check_tensor(x, Tensor, torch.float32, requires_grad=False, "
        f"size=[{number + 2}], stride=[1])"
        for number in range(3)
    ]
    assert [line.rpartition(": ")[2] for line in lines if "doubled (" in line] == [
        f"size of dim 0 was {size}, is {size + 1}" for size in (2, 3, 4)
    ]
    assert len(lines) == 11


# -- the limit -------------------------------------------------------------------------------------


def test_reaching_the_limit_always_fails() -> None:
    seen = watched(recompile_cases.doubled, *(called(ones(n)) for n in range(2, 14)), dynamic=False)
    line = recompile_cases.doubled.__code__.co_firstlineno
    head = "recompile limit reached, so later calls to doubled run eagerly"
    place = re.escape(f"doubled ({FILE}:{line}): ")
    limit = f"(?s)\\A{head}.*{place}.*recompile limit reached, so later calls run eagerly\\Z"
    for check in (
        lambda: seen.assert_recompiles(max=100),
        lambda: seen.assert_recompiles(count=(0, None)),
        lambda: seen.assert_recompiles(count=len(seen.recompiles)),
        seen.assert_no_recompiles,
    ):
        with pytest.raises(AssertionError, match=limit):
            check()
    eager = r"these calls ran eagerly(?s:.*)doubled .*recompile limit reached, so later calls ran"
    for check in (
        seen.assert_no_graph_breaks,
        lambda: seen.assert_graph_count(total=(1, None)),
        lambda: seen.assert_no_ops("torch.sin"),
    ):
        with pytest.raises(AssertionError, match=eager):
            check()
    assert [recompile.limit_hit for recompile in seen.recompiles] == [*[False] * 7, True]


@pytest.mark.slow("compiles many times")
def test_recompile_limit_of_a_resumed_frame_fails() -> None:
    seen = watched(recompile_cases.broken, *(called(ones(n)) for n in range(2, 14)), dynamic=False)
    with pytest.raises(
        AssertionError, match="recompile limit reached, so later calls to broken run eag"
    ):
        seen.assert_recompiles(max=100)


# -- counts ----------------------------------------------------------------------------------------


def test_recompilations_are_counted() -> None:
    seen = watched(recompile_cases.doubled, *(called(ones(n)) for n in (2, 3, 4)), dynamic=False)
    seen.assert_recompiles(2)
    seen.assert_recompiles(count=(1, None))
    seen.assert_recompiles(count={"cpu": 2})
    seen.assert_recompiles(max=2)
    for arguments, message in (
        ({"count": 1}, "expected 1, found 2"),
        ({"count": 3}, "expected 3, found 2"),
        ({"max": 1}, "expected at most 1, found 2"),
    ):
        with pytest.raises(AssertionError, match=f"recompilations: {message}"):
            seen.assert_recompiles(**arguments)


def test_assertion_on_a_capture_without_this_record_is_refused() -> None:
    for ask in (
        lambda c: c.recompiles,
        lambda c: c.executions,
        lambda c: c.counters,
        lambda c: c.assert_no_recompiles(),
    ):
        with pytest.raises(CaptureError, match=r"not available on a capture via 'dispatch': use"):
            ask(capture(recompile_cases.doubled, ones(3), via="dispatch"))


# -- no chance of a recompile ----------------------------------------------------------------------


def test_recompile_check_of_one_call_fails() -> None:
    seen = watched(recompile_cases.doubled, called(ones(3)))
    for check in (
        seen.assert_no_recompiles,
        lambda: seen.assert_recompiles(max=5),
        lambda: seen.assert_recompiles(count=0),
    ):
        with pytest.raises(
            AssertionError,
            match=r"no compiled code ran twice \(0/0 ran once\), and none was compiled",
        ):
            check()


def test_backward_is_not_a_second_call() -> None:
    seen = watched(
        recompile_cases.doubled,
        lambda function: function(ones(3, requires_grad=True)).sum().backward(),
        backend="aot_eager",
    )
    assert seen.executions == {"0/0": 1, "0/0 backward": 1}
    with pytest.raises(AssertionError, match="no compiled code ran twice"):
        seen.assert_no_recompiles()


def test_one_call_of_precompiled_code_is_evidence() -> None:
    function = torch.compile(recompile_cases.doubled, backend="eager")
    function(ones(3))
    with watch() as seen:
        function(ones(3))
    seen.assert_no_recompiles()


def test_recompile_check_of_two_functions_called_once_fails() -> None:
    first, second = (
        torch.compile(f, backend="eager")
        for f in (recompile_cases.doubled, recompile_cases.by_global)
    )
    with watch() as seen:
        first(ones(3))
        second(ones(3))
    with pytest.raises(AssertionError, match=r"ran twice \(0/0 ran once, 1/0 ran once\)"):
        seen.assert_no_recompiles()


# -- parts of a watch ------------------------------------------------------------------------------


def test_instances_of_one_class_compile_each_other_again() -> None:
    first, second = (torch.compile(Net(scale), backend="eager") for scale in (2, 3))
    with watch() as seen:
        first(ones(4))
        second(ones(4))
    (recompile,) = seen.recompiles
    assert recompile.reasons == ("self.scale: was 2, is 3",)
    assert recompile.function == "forward"


def test_recompiles_of_one_function() -> None:
    steady = torch.compile(recompile_cases.doubled, backend="eager")
    changing = torch.compile(recompile_cases.scaled, backend="eager")
    with watch() as seen:
        for n in range(2, 5):
            steady(ones(3))
            changing(ones(3), str(n) == "2" or n)
    seen.only(function="doubled").assert_no_recompiles()
    seen.only(function="d*d").assert_graph_count(total=1)
    with pytest.raises(AssertionError, match=r" scaled \("):
        seen.only(function="scaled").assert_no_recompiles()
    with pytest.raises(AssertionError, match=r" scaled \("):
        seen.assert_no_recompiles()
    with watch() as later:
        steady(ones(3))
    later.only(function="doubled").assert_no_recompiles()
    with pytest.raises(AssertionError, match="that matches function='scaled'"):
        later.only(function="scaled").assert_no_recompiles()
    there = (
        r"function='helper' was called .* The compiled functions are: "
        rf"doubled \({FILE}:\d+\), scaled \("
    )
    with pytest.raises(AssertionError, match=there):
        seen.only(function="helper").assert_no_graph_breaks()


def test_run_after_a_reset_is_attributed_by_the_new_compile_id() -> None:
    with watch() as whole:
        torch.compile(recompile_cases.scaled, backend="eager")(ones(3), 2)
        torch._dynamo.reset()  # the next compile id is 0/0 again
        doubled = torch.compile(recompile_cases.doubled, backend="eager")
        doubled(ones(3))
        with watch() as later:
            doubled(ones(3))
    later.only(function="doubled").assert_no_recompiles()
    assert whole.executions == {"0/0": 3}


@pytest.mark.parametrize("name", ["Net.forward", "*.forward", "N*"])
def test_recompiles_of_a_module_by_class(name: str) -> None:
    module = torch.compile(Net(), backend="eager")
    other = torch.compile(recompile_cases.Other(), backend="eager")
    with watch() as seen:
        module(ones(4))
        module(ones(4))
        other(ones(4))
    part = seen.only(function=name)
    part.assert_no_recompiles()
    part.assert_no_graph_breaks()
    part.assert_graph_count(total=1 + (name == "*.forward"))


def test_recompiles_within_a_place() -> None:
    def mine(x: Tensor, scale: Any) -> Tensor:
        return x * scale

    function = torch.compile(mine, backend="eager")
    theirs = torch.compile(recompile_cases.doubled, backend="eager")
    with watch() as seen:
        function(ones(3), 2)
        function(ones(3), "3" == "3")
        theirs(ones(3))
        theirs(ones(3))
    seen.only(within=recompile_cases.__file__).assert_no_recompiles()
    with pytest.raises(AssertionError, match=r" mine \(.*test_recompiles.py"):
        seen.only(within=__file__).assert_no_recompiles()
    with pytest.raises(AssertionError, match=r" mine \("):
        seen.only(within="watching").assert_no_recompiles()
    assert len(seen.only(within="watching", function="doubled").graphs) == 1
    with pytest.raises(ValueError, match="within='nowhere' is neither"):
        seen.only(within="nowhere")


def test_size_of_a_parameter_has_advice_that_works() -> None:
    """`mark_dynamic` has no effect on a parameter (reported as microsoft/dion#23)."""

    def recompiles() -> Capture:
        @torch.compile(backend="aot_eager", fullgraph=True)
        def update(weights: list[torch.Tensor]) -> None:
            for weight in weights:
                weight.mul_(0.9)

        with watch() as seen:
            for size in (4, 6, 8):
                update([torch.nn.Parameter(torch.randn(4, size), requires_grad=False)])
        return seen

    with pytest.raises(AssertionError) as failed:
        recompiles().assert_no_recompiles()
    assert "mark_dynamic" not in str(failed.value)
    assert "torch._dynamo.config.force_parameter_static_shapes = False" in str(failed.value)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(force_parameter_static_shapes=False):
        recompiles().assert_recompiles(count=1)  # to the dynamic size
