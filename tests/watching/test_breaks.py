"""Every graph break is reported once, on the line of the user's code, without false reports."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_releases import skip_before
from watching import break_cases
from watching.break_cases import BROKEN, CLEAN, expected, line_of, nested_deeper

from pytest_torchgraph import Capture, CaptureError, capture, watch

FILE = str(Path(break_cases.__file__).relative_to(Path.cwd()))
GIVEN_UP = {
    "in_except",
    "in_for_loop",
    "in_generator",
    "in_operator",
    "in_property",
    "in_try",
    "own_metaclass_iterated",
    "raised_and_not_caught_here",
    "under_user_context",
}
"""The cases that Dynamo 2.13 cannot resume after the break, so that it gives up the frame."""

LOOP = re.escape("Call to `torch._dynamo.graph_break()`: User-inserted graph break. Message: None")


# The tests try untraceable code, and torch warns about it.
pytestmark = pytest.mark.filterwarnings(r"ignore:::torch")


def watched(run: Callable[[], Any]) -> Capture:
    with contextlib.redirect_stdout(io.StringIO()), watch() as seen:
        run()
    return seen


def compiled(function: Any, *args: Any, backend: str = "eager") -> Capture:
    return watched(lambda: torch.compile(function, backend=backend)(*(args or (torch.ones(3),))))


def plain(x: Tensor) -> Tensor:
    return x * 2


# -- every break is reported once ------------------------------------------------------------------


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=[
        "first_statement",
        "in_except",
        "in_for_loop",
        "in_generator",
        "in_property",
        "in_try",
        "own_metaclass_iterated",
        "under_user_context",
    ],
)
@pytest.mark.parametrize("name", BROKEN)
def test_each_break_is_reported_once_on_its_line(name: str) -> None:
    if name == "in_generator":
        skip_before("2.11", "the break is on the line that runs the generator")
    if name == "own_metaclass_iterated":
        skip_before("2.13", "Dynamo does not enter the method, and breaks at its call")
    seen = watched(BROKEN[name]("eager"))
    assert sorted(graph_break.line for graph_break in seen.breaks) == expected(name) != []
    given_up = any(graph_break.kind.startswith("frame skipped: ") for graph_break in seen.breaks)
    assert given_up == (name in GIVEN_UP)
    lines = Path(break_cases.__file__).read_text().splitlines()
    for each in seen.breaks:
        assert each.file == FILE
        assert each.code == lines[each.line - 1].strip()
        assert each.kind
        assert each.reason
        assert each.function
        assert each.compile_id
        assert each.occurrences >= 1
        assert each.stack[-1][:3] == (each.file, each.line, each.function)
        assert str(each) == f"{FILE}:{each.line} in {each.function}: {each.code}\n" + (
            f"{each.kind}: {each.reason}"
        )
        for text in (each.kind, each.reason, each.hint, each.file):
            assert not re.search(r"0x[0-9a-f]{6}|/site-packages/|^/", text), text
    with pytest.raises(AssertionError, match=r"\Agraph breaks: expected 0, found \d") as failure:
        seen.assert_no_graph_breaks()
    for line in expected(name):
        assert f"{FILE}:{line} in " in str(failure.value)


@pytest.mark.slow(
    "further cases; a few are in every run",
    unless=["arithmetic", "closures", "exceptions", "python_control_flow"],
)
@pytest.mark.parametrize("name", CLEAN)
def test_subjects_without_a_break_have_none(name: str) -> None:
    seen = watched(CLEAN[name]("aot_eager"))
    assert seen.breaks == ()
    seen.assert_no_graph_breaks()
    seen.assert_graph_breaks(max=0)
    seen.assert_graph_count(total=1)
    with pytest.raises(AssertionError, match=r"\Agraph breaks: expected 1, found none\Z"):
        seen.assert_graph_breaks(1)


def test_breaks_of_two_kinds_on_one_line_are_two() -> None:
    seen = compiled(two_kinds)
    assert [graph_break.line for graph_break in seen.breaks] == [
        two_kinds.__code__.co_firstlineno + 2
    ] * 2
    assert len({graph_break.kind for graph_break in seen.breaks}) == 2


def two_kinds(x: Tensor) -> Tensor:
    x = x + 1
    return (print("seen") or x).sum().item()  # type: ignore[func-returns-value]


def test_break_in_a_callee_has_its_call_stack() -> None:
    nested = [torch.compile(f, backend="eager") for f in (break_cases.nested_call, nested_deeper)]
    seen = watched(lambda: [function(torch.ones(3)) for function in reversed(nested)])
    (graph_break,) = seen.breaks  # reached from two functions, it is one
    assert Path(graph_break.stack[0].file).name == Path(__file__).name
    assert [frame.function for frame in graph_break.stack[-3:]] == [
        "nested_deeper",
        "between",
        "says",
    ]
    assert graph_break.stack[-2].code == "return says(x * 3) * 4"
    with pytest.raises(AssertionError, match=r"from .*break_cases.py:.* in between: return says"):
        seen.assert_no_graph_breaks()


def test_break_hint_is_dynamos() -> None:
    (graph_break,) = compiled(break_cases.boolean_mask).breaks
    assert "capture_dynamic_output_shape_ops" in graph_break.hint
    (graph_break,) = compiled(break_cases.asked_for).breaks
    assert "Message: asked for" in graph_break.reason


# -- repeated breaks -------------------------------------------------------------------------------


def test_break_at_a_recompile_is_the_same_break() -> None:
    function = torch.compile(break_cases.printed, backend="eager", dynamic=False)
    once = watched(lambda: function(torch.ones(3)))
    torch._dynamo.reset()
    thrice = watched(lambda: [function(torch.ones(n)) for n in (3, 4, 4, 5)])
    assert [graph_break.occurrences for graph_break in once.breaks] == [1]
    assert [graph_break.occurrences for graph_break in thrice.breaks] == [3]
    assert (
        len([recompile for recompile in thrice.recompiles if recompile.function == "printed"]) >= 2
    )
    thrice.assert_graph_breaks(1)
    with pytest.raises(AssertionError, match="reached 3 times"):
        thrice.assert_no_graph_breaks()


# -- counts ----------------------------------------------------------------------------------------


def test_breaks_are_counted() -> None:
    seen = watched(BROKEN["two_in_a_row"]("eager"))
    assert len({graph_break.kind for graph_break in seen.breaks}) == 1
    assert [graph_break.compile_id for graph_break in seen.breaks] == ["0/0", "1/0"]
    seen.assert_graph_breaks(2)
    seen.assert_graph_breaks(count=(1, 2))
    seen.assert_graph_breaks(count=(2, None))
    seen.assert_graph_breaks(count={"cpu": 2})
    seen.assert_graph_breaks(max=2)
    seen.assert_graph_breaks(count=(1, 3), max=(0, None))
    for arguments, message in (
        ({"count": 1, "max": (0, None)}, "expected 1, found 2"),
        ({"max": 1}, "expected at most 1, found 2"),
        ({"count": (0, 5), "max": 1}, "expected at most 1, found 2"),
        ({"count": {"cpu": 0}}, "expected 0, found 2"),
    ):
        with pytest.raises(AssertionError, match=re.escape(message)) as failure:
            seen.assert_graph_breaks(**arguments)
        assert str(failure.value).count("Failed to trace builtin operator\n") == 2


def test_break_counts_by_device() -> None:
    """The meta device represents an accelerator."""
    x = torch.ones(3, device="meta")
    function = torch.compile(break_cases.printed, backend="aot_eager", dynamic=False)
    seen = watched(lambda: [function(x), function(x), function(torch.ones(4, device="meta"))])
    seen.assert_graph_breaks({"cpu": 0, "meta": 1})
    seen.assert_graph_breaks(max={"cpu": 0, "meta": 1})
    seen.assert_recompiles({"cpu": 0, "meta": 2})
    seen.assert_graph_count(total={"cpu": 0, "meta": 4})
    for check in (
        lambda: seen.assert_graph_breaks({"cpu": 1, "meta": 0}),
        lambda: seen.assert_recompiles({"cpu": 2, "meta": 0}),
        lambda: seen.assert_graph_count(total={"cpu": 4, "meta": 0}),
    ):
        with pytest.raises(AssertionError, match="expected 0, found"):
            check()
    with pytest.raises(ValueError, match="missing count for device 'meta'"):
        seen.assert_graph_breaks({"cpu": 1, "cuda": 1})


def test_count_that_checks_nothing_is_an_error() -> None:
    seen = compiled(plain)
    with pytest.raises(TypeError, match=r"assert_graph_breaks\(\) checks nothing: pass count="):
        seen.assert_graph_breaks()
    with pytest.raises(TypeError, match="'2' is not a valid count"):
        seen.assert_graph_breaks("2")
    with pytest.raises(ValueError, match="no number satisfies the count -1"):
        seen.assert_graph_breaks(-1)
    with pytest.raises(ValueError, match="missing count for device 'cpu'"):
        seen.assert_graph_breaks({"cuda": 0})


def test_assertion_on_a_capture_without_this_record_is_refused() -> None:
    for ask in (
        lambda c: c.breaks,
        lambda c: c.assert_no_graph_breaks(),
        lambda c: c.assert_graph_breaks(0),
    ):
        with pytest.raises(CaptureError, match="graph breaks are not available on a capture via"):
            ask(capture(plain, torch.ones(3), via="fx"))


# -- allowed breaks --------------------------------------------------------------------------------


def test_allow_of_break_kinds() -> None:
    seen = compiled(break_cases.printed)
    seen.assert_no_graph_breaks(allow="Failed to trace builtin")
    seen.assert_no_graph_breaks(allow=[r"no such thing", r"builtin operator `print`"])
    seen.assert_graph_breaks(0, allow="Failed to trace builtin operator: Dynamo does not know")
    with pytest.raises(AssertionError, match="expected 0, found 1"):
        seen.assert_no_graph_breaks(allow="Data-dependent")
    with pytest.raises(AssertionError, match="expected 1, found none"):
        seen.assert_graph_breaks(1, allow="print")


def test_allow_of_a_kind_with_regex_characters() -> None:
    seen = compiled(break_cases.item)
    (found,) = seen.breaks
    assert "()" in found.kind, "the kind would match itself as a regular expression"
    seen.assert_no_graph_breaks(allow=[found.kind])
    seen.assert_no_graph_breaks(allow=f"{found.kind}: {found.reason.split()[0]}")
    with pytest.raises(AssertionError, match="expected 0, found 1"):
        seen.assert_no_graph_breaks(allow=f"{found.kind}.")


def test_break_failure_mentions_allowed_breaks() -> None:
    def run() -> None:
        for function in (break_cases.printed, break_cases.item):
            torch.compile(function, backend="eager")(torch.ones(3))

    with pytest.raises(
        AssertionError, match=r"expected 0, found 1 \(and 1 that allow= permits\)\n  1\. "
    ) as e:
        watched(run).assert_no_graph_breaks(allow="print")
    assert f":{line_of('item')} in item" in str(e.value)
    assert f":{line_of('printed')} in" not in str(e.value)


def test_allow_of_a_given_up_frame_beside_compiled_ones() -> None:
    loop = torch.compile(break_cases.in_for_loop, backend="eager")
    other = torch.compile(plain, backend="eager")
    alone = watched(lambda: loop(torch.ones(3)))
    with pytest.raises(
        AssertionError, match=r"no graph was compiled:\n  in_for_loop .*graph_break"
    ):
        alone.assert_no_graph_breaks(allow=LOOP)
    torch._dynamo.reset()
    both = watched(lambda: [loop(torch.ones(3)), loop(torch.ones(3)), other(torch.ones(3))])
    both.assert_no_graph_breaks(allow=LOOP)
    both.assert_graph_breaks(1)
    both.assert_graph_breaks(1, within=break_cases.__file__)
    with pytest.raises(AssertionError, match="these calls ran eagerly"):
        both.assert_no_ops("torch.sin")


def test_invalid_allow_expression_is_an_error() -> None:
    seen = compiled(plain)
    with pytest.raises(
        ValueError, match=r"allow='\(' is not a valid regular expression: missing \)"
    ):
        seen.assert_no_graph_breaks(allow="(")
    for wrong in (5, [5], None):
        with pytest.raises(TypeError):
            seen.assert_no_graph_breaks(allow=wrong)  # type: ignore[arg-type]


# -- breaks in other packages ----------------------------------------------------------------------

LIBRARY = """
def scale(x):
    x = x * 2
    print("library")
    return x + 1

def double(x):
    return x * 2
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    package = tmp_path / "somelibrary"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "ops.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    import somelibrary.ops  # type: ignore[import-not-found]

    yield somelibrary.ops
    for name in [name for name in sys.modules if name.startswith("somelibrary")]:
        del sys.modules[name]


def test_within_tolerates_breaks_elsewhere(library: Any, tmp_path: Path) -> None:
    def calls(x: Tensor) -> Tensor:
        return library.scale(x + 1) * 3

    seen = compiled(calls)
    (graph_break,) = seen.breaks
    assert (graph_break.file, graph_break.line, graph_break.function) == (
        "somelibrary/ops.py",
        4,
        "scale",
    )
    seen.assert_no_graph_breaks(within=Path(__file__).parent)
    seen.assert_no_graph_breaks(within=__file__)
    seen.assert_no_graph_breaks(within="watching")
    seen.assert_no_graph_breaks(within="somelibrary", allow="print")  # evidence of compilation
    seen.assert_graph_breaks(1, within=["watching", "somelibrary"])
    (tmp_path / "some").mkdir()
    with pytest.raises(AssertionError, match=r"no code within=.*some'"):
        seen.assert_no_graph_breaks(within=tmp_path / "some")  # a name with the same beginning
    seen.assert_graph_breaks(1, within=tmp_path)
    for inside in (
        "somelibrary",
        "somelibrary.ops",
        Path(library.__file__).parent,
        library.__file__,
    ):
        with pytest.raises(
            AssertionError, match=r"expected 0, found 1\n  1\. somelibrary/ops.py:4"
        ):
            seen.assert_no_graph_breaks(within=inside)


def test_within_a_place_without_compiled_code_fails(library: Any) -> None:
    def calls(x: Tensor) -> Tensor:
        return library.double(x + 1)

    compiled(calls).assert_no_graph_breaks(within="somelibrary")  # inlined, so it has no frame
    torch._dynamo.reset()
    for within in ("somelibrary", ["somelibrary", "json"]):
        with pytest.raises(
            AssertionError,
            match=r"no code within=.*somelibrary'.* was compiled\. "
            r"Compiled code is in: tests/watching/test_breaks\.py\Z",
        ):
            compiled(plain).assert_graph_breaks(max=3, within=within)
        torch._dynamo.reset()


# -- the module ------------------------------------------------------------------------------------


class Speaking(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x * 2
        print("seen")
        return x + 1


class Model(nn.Module):
    def __init__(self, inner: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([inner(), inner()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class First(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.layers[0](x) + 1


@pytest.mark.slow("compiles many times")
def test_a_break_has_the_path_of_its_module() -> None:
    for model in (Model(Speaking), First(Speaking)):
        (graph_break,) = compiled(model).breaks
        assert graph_break.module == "layers.0"
        torch._dynamo.reset()
    with pytest.raises(AssertionError, match=r"     module layers\.0\n"):
        compiled(First(Speaking)).assert_no_graph_breaks()
    assert capture(First(Speaking), torch.ones(3)).breaks[0].module == "layers.0"


def test_module_path_of_a_break_after_a_break_in_a_function_and_in_no_module() -> None:
    class Second(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x.sum().item()

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Speaking(), Second()

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    assert [graph_break.module for graph_break in compiled(Both()).breaks] == ["first", ""]
    model = First(lambda: First(Speaking))
    (graph_break,) = compiled(lambda x: model(x) * 2).breaks
    assert graph_break.module == "model.layers.0.layers.0"
    torch._dynamo.reset()
    for function in (Speaking(), break_cases.printed):
        assert [graph_break.module for graph_break in compiled(function).breaks] == [""]


def test_within_an_unknown_place_is_an_error() -> None:
    for seen in (compiled(plain), compiled(break_cases.printed)):
        for wrong in ("nonsense", "nonsense.inner", "/no/such/path", "", [], 5, [None]):
            why = r"within=.* (is neither an existing path|is empty)"
            with pytest.raises(ValueError, match=why):
                seen.assert_no_graph_breaks(within=wrong)  # type: ignore[arg-type]


# -- hand-overs to compiled autograd ---------------------------------------------------------------


def test_break_beside_a_hand_over_is_reported() -> None:
    def noisy(x: Tensor) -> Tensor:
        loss = (x * 2).sum()
        print("seen")
        loss.backward()
        return loss

    with torch._dynamo.config.patch(compiled_autograd=True):
        (graph_break,) = compiled(noisy, torch.ones(3, requires_grad=True)).breaks
    assert graph_break.code == 'print("seen")'


# -- asserts that pytest rewrote -------------------------------------------------------------------


def asserting(x: Tensor) -> Tensor:
    assert x.sum() > 0
    return x * 2


def test_assert_rewritten_by_pytest_is_named() -> None:
    (graph_break,) = compiled(asserting).breaks
    assert graph_break.line == asserting.__code__.co_firstlineno + 1
    assert graph_break.hint.startswith("pytest rewrote this assert, and the new code branches on")


def test_plain_assert_is_not_named_as_rewritten(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "notrewritten.py").write_text(
        "def check(x):\n    assert print('seen') is None\n    return x * 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import notrewritten  # type: ignore[import-not-found]

    (graph_break,) = compiled(notrewritten.check).breaks
    assert graph_break.code.startswith("assert")
    assert "pytest rewrote" not in graph_break.hint


# -- failures --------------------------------------------------------------------------------------


def test_a_break_under_fullgraph_is_raised_and_seen() -> None:
    function = torch.compile(break_cases.printed, backend="eager", fullgraph=True)
    with watch() as seen, pytest.raises(torch._dynamo.exc.Unsupported):
        function(torch.ones(3))
    (graph_break,) = seen.breaks
    assert (graph_break.line, graph_break.kind) == (
        line_of("printed"),
        "frame skipped: Failed to trace builtin operator",
    )


def test_an_exception_in_compiled_code_is_a_frame_given_up() -> None:
    def raises(x: Tensor) -> Tensor:
        x = x + 1
        raise KeyError("mine")

    with watch() as seen, pytest.raises(KeyError, match="mine"):
        torch.compile(raises, backend="eager")(torch.ones(3))
    (graph_break,) = seen.breaks
    assert graph_break.kind == "frame skipped: Observed exception"
    assert graph_break.code == 'raise KeyError("mine")'


def test_a_verbose_report_has_the_same_place() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x.sin()

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x.cos())

    torch._dynamo.reset()
    with torch._dynamo.config.patch(verbose=True), watch() as seen:
        torch.compile(outer, backend="eager")(torch.ones(3))
    first, *_ = seen.breaks
    assert (first.function, first.line) == ("inner", inner.__code__.co_firstlineno + 1)
    assert [frame.function for frame in first.stack][-2:] == ["outer", "inner"]
