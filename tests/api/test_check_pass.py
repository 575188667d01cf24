"""`check_pass`: planted bugs are found, whatever the inputs, and right passes have no problem."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from api.planted_passes import NORMS, ORDER, PASSES, fuse, put, replace
from torch import fx

from pytest_torchgraph import CaptureError, Graph, GraphDiff, capture, check_pass, from_fx, to_fx

aten = torch.ops.aten
BUGS = [(name, bug) for name, case in PASSES.items() for bug in case.bugs]


@pytest.fixture(params=[0, 1])
def seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("pytest_torchgraph.api.check_pass.SEED", request.param)
    return int(request.param)


def problems(error: pytest.ExceptionInfo[AssertionError]) -> list[str]:
    """Return the lines of a message that begin with a kind of problem."""
    kinds = (
        "malformed change after values val annotations aliasing inputs_written not_idempotent"
    ).split()
    starts = tuple(f"{kind.replace('_', ' ')}:" for kind in kinds)
    return [line for line in str(error.value).splitlines() if line.startswith(starts)]


@pytest.mark.slow("further seeds", unless=["0-*"])
@pytest.mark.parametrize(("name", "bug"), BUGS)
@pytest.mark.usefixtures("seed")
def test_planted_bug_is_found(name: str, bug: str) -> None:
    case = PASSES[name]
    with pytest.raises(AssertionError) as error:
        check_pass(case.pass_with(bug), case.module(), **case.expected)
    lines = problems(error)
    assert any(line.startswith(f"{case.bugs[bug]}:") for line in lines), error.value


@pytest.mark.parametrize("name", PASSES)
def test_right_pass_has_no_problem(name: str) -> None:
    case = PASSES[name]
    found = check_pass(case.pass_with(), case.module(), **case.expected)
    assert isinstance(found, GraphDiff)
    assert bool(found) == (name != "reordering")


def reinplace(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if node.target is aten.mul.Tensor:
            node.target = aten.mul_.Tensor


def copy_outputs(module: fx.GraphModule) -> None:
    output = module.graph.output_node()
    for value in output.all_input_nodes:
        if value.op == "placeholder":
            output.replace_input_with(value, put(output, aten.clone.default, (value,), value))


def text_of(*lines: str) -> str:
    body = "".join(f"  {line}\n" for line in ("%x = input : f32[4, 4]", *lines))
    return f"torchgraph 1\n\ninference @ aot {{\n{body}}}\n"


DOUBLED = text_of("%y = aten.mul.Tensor(%x, 2.0) : f32[4, 4]", "return %y")
RETURNED = text_of("%y = aten.sin.default(%x) : f32[4, 4]", "return [%y, %x]")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('aten.div.Tensor_mode(%x, 2, rounding_mode="floor")', '(%x, 2, rounding_mode="trunc")'),
        ("aten.bitwise_and.Scalar(%x, 255)", "(%x, 127)"),
    ],
)
def test_random_integers_are_negative_and_large(old: str, new: str) -> None:
    text = text_of(f"%y = {old} : i64[4, 4]", "return %y").replace("f32", "i64")
    changed = text.replace(old[old.index("(") :], new)

    def replace_all(module: fx.GraphModule) -> fx.GraphModule:
        return to_fx(Graph.from_text(changed))

    with pytest.raises(AssertionError, match="values: output 0 differs"):
        check_pass(replace_all, text)


def test_random_integers_fit_as_indices() -> None:
    lines = (
        "%weight = input : f32[8, 4]",
        "%y = aten.embedding.default(%weight, %x) : f32[4, 4, 4]",
        "return %y",
    )
    check_pass(
        lambda module: module, text_of(*lines).replace("f32[4, 4]\n", "i64[4, 4]\n", 1), changes={}
    )


def test_reinplacing_pass_is_allowed_to_write() -> None:
    with pytest.raises(AssertionError) as error:
        check_pass(reinplace, DOUBLED)
    assert problems(error) == [
        "inputs written: a run writes input x, only after the pass",
        "aliasing: output 0 shares memory with input x, only after the pass",
    ]
    assert check_pass(reinplace, DOUBLED, allow=["inputs written: .* input x", "aliasing"])


def test_copying_pass_is_allowed_to_change_the_aliasing() -> None:
    with pytest.raises(AssertionError) as error:
        check_pass(copy_outputs, RETURNED)
    line = "aliasing: output 1 shares memory with input x, only before the pass"
    assert problems(error) == [line]
    assert check_pass(copy_outputs, RETURNED, allow="aliasing: output 1", changes={"aten.clone": 1})
    with pytest.raises(AssertionError, match="aliasing: output 1"):
        check_pass(copy_outputs, RETURNED, allow="aliasing: output 2")


def test_all_problems_are_in_one_message() -> None:
    def bad(graph: fx.Graph) -> None:
        (node,) = graph.find_nodes(op="call_function", target=aten.mul.Tensor)
        new = put(node, aten.add.Tensor, node.args, node)
        new = put(node, aten.add_.Tensor, (new, 1.0), node)
        del new.meta["val"]
        replace(node, new)
        with graph.inserting_before(graph.output_node()):
            graph.call_function(aten.relu_.default, (next(iter(graph.nodes)),))

    with pytest.raises(AssertionError) as error:
        check_pass(bad, DOUBLED, changes={"aten.mul": -1, "aten.add": 2})
    message = str(error.value)
    assert message.startswith("bad: ")
    assert [line.partition(":")[0] for line in problems(error)] == [
        *["change"] * 3,
        *["values", "inputs written", "val", "val", "not idempotent"],
    ]
    assert "change: aten.add: expected +2, found +1" in message
    assert "change: aten.add_.Tensor: +1, which changes= does not name" in message
    assert "val: add__tensor has no meta['val']" in message
    assert "The pass made 2 edits" in message


def add_input(graph: fx.Graph) -> None:
    with graph.inserting_before(next(iter(graph.nodes))):
        graph.placeholder("more")


def add_output(graph: fx.Graph) -> None:
    output = graph.output_node()
    output.args = ((*output.args[0], output.args[0][0]),)  # type: ignore[index,misc]


def remove_output(graph: fx.Graph) -> None:
    graph.erase_node(graph.output_node())


def view_wrongly(graph: fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.mul.Tensor):
        node.target, node.args = aten.view.default, (node.args[0], [3])


def write_attribute(module: fx.GraphModule) -> None:
    module.register_buffer("count", torch.zeros(4, 4))
    output = module.graph.output_node()
    with module.graph.inserting_before(output):
        count = module.graph.get_attr("count")
    new = put(output, aten.add_.Tensor, (count, 1.0), output.args[0][0])  # type: ignore[index,arg-type]
    new.meta["val"] = new.meta["val"].clone()


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (add_input, "malformed: the inputs were x, are more, x"),
        (remove_output, "malformed: the graph has no output"),
        (add_output, "values: 1 output before the pass, 2 after it"),
        (view_wrongly, "values: the graph fails after the pass: RuntimeError: shape"),
        (write_attribute, "inputs written: a run writes attribute count, only after the pass"),
    ],
)
def test_graph_that_cannot_stand_for_the_other(wrong: Any, line: str) -> None:
    with pytest.raises(AssertionError) as error:
        check_pass(wrong, DOUBLED)
    assert any(problem.startswith(line) for problem in problems(error)), error.value


def test_subject_is_not_modified() -> None:
    case = PASSES["fusion"]
    module = case.module()
    before = from_fx(module)
    metas = [dict(node.meta) for node in module.graph.nodes]
    x = torch.ones(4, 16)
    check_pass(case.pass_with(), module, (x, x, x[0], x[0, 0], x[0, 0]), rtol=0)
    assert from_fx(module) == before
    assert [dict(node.meta) for node in module.graph.nodes] == metas
    assert torch.equal(x, torch.ones(4, 16))


@pytest.mark.parametrize("kind", ["text", "Graph", "GraphModule"])
def test_subject_is_a_text_a_graph_or_a_module(kind: str) -> None:
    make: dict[str, Any] = {"text": str, "Graph": Graph.from_text, "GraphModule": to_fx}
    found = check_pass(lambda module: fuse(module, ""), make[kind](NORMS))
    assert found.heading().count("planted.norm_quant") == 1


def test_pass_takes_what_its_first_parameter_says() -> None:
    seen: list[type] = []

    class OnGraph:
        def __call__(self, g: fx.Graph) -> None:
            seen.append(type(g))

    def named(graph: Any) -> None:
        seen.append(type(graph))

    def annotated(x: torch.fx.Graph) -> None:
        seen.append(type(x))

    def module(gm: fx.GraphModule) -> None:
        seen.append(type(gm))

    for function in (OnGraph(), named, annotated):
        check_pass(function, DOUBLED, changes={})
    assert set(seen) == {fx.Graph}
    seen.clear()
    check_pass(module, DOUBLED, changes={})
    assert all(issubclass(kind, fx.GraphModule) for kind in seen)


def test_pass_returns_a_new_module_or_a_result() -> None:
    from torch.fx.passes.infra.pass_base import PassResult

    class ToClamp(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is aten.relu.default:
                target, args = aten.clamp_min.default, (*args, 0)
            return super().call_function(target, args, kwargs)

    text = text_of("%y = aten.relu.default(%x)", "return %y")
    changes = {"aten.relu": -1, "aten.clamp_min": 1}

    def returns(module: fx.GraphModule) -> fx.GraphModule:
        return ToClamp(module).transform()

    for function in (returns, lambda module: PassResult(returns(module), True)):
        found = check_pass(function, text, changes=changes, allow="val: clamp_min")
        assert len(found.findings) == 1


def test_inputs_of_one_call_or_of_several() -> None:
    def to_relu(graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.mul.Tensor):
            node.target, node.args = aten.relu.default, node.args[:1]

    text = text_of("%y = aten.mul.Tensor(%x, 1.0) : f32[4, 4]", "return %y")
    good, bad = torch.ones(4, 4), -torch.ones(4, 4)
    check_pass(to_relu, text, [good])
    check_pass(to_relu, text, (good,))
    with pytest.raises(AssertionError, match=r"values: output 0 differs \(with call 2 of"):
        check_pass(to_relu, text, [(good,), (bad,)])
    with pytest.raises(TypeError, match=r"takes 1 input \(x\), but inputs has 2"):
        check_pass(to_relu, text, (good, bad))
    with pytest.raises(TypeError, match="a tuple or list"):
        check_pass(to_relu, text, good)  # type: ignore[arg-type]


def test_input_without_meta_must_be_passed() -> None:
    module = fx.symbolic_trace(lambda x: torch.relu(x) + 1)

    def nothing(gm: fx.GraphModule) -> None:
        pass

    with pytest.raises(TypeError, match=r"input x has no meta\['val'\], so pass inputs="):
        check_pass(nothing, module, changes={})
    assert not check_pass(nothing, module, (torch.ones(2),), changes={})


def test_graph_that_cannot_run_before_the_pass_is_an_error() -> None:
    text = text_of("%y = aten.mm.default(%x, %x) : f32[4, 4]", "return %y").replace("4, 4", "4, 5")
    with pytest.raises(CaptureError, match="cannot run before the pass, so pass inputs="):
        check_pass(reinplace, text)
    with pytest.raises(CaptureError, match="cannot run before the pass with these inputs: "):
        check_pass(reinplace, text, [torch.ones(4, 5)])


def test_values_that_are_all_infinite_compare_nothing() -> None:
    def to_exp2(graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.div.Tensor):
            node.args = (node.args[0], -0.0)

    text = text_of("%y = aten.div.Tensor(%x, 0.0) : f32[4, 4]", "return %y")
    with pytest.raises(AssertionError, match="values: nothing compared"):
        check_pass(to_exp2, text)


@pytest.mark.parametrize("returned", ["[]", "None"])
def test_graph_without_outputs_compares_only_what_it_writes(returned: str) -> None:
    def to_cos(graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.sin.default):
            node.target = aten.cos.default

    sin = "%y = aten.sin.default(%x) : f32[4, 4]"
    with pytest.raises(AssertionError, match="values: nothing compared, because no output"):
        check_pass(to_cos, text_of(sin, f"return {returned}"))
    write = "%z = aten.copy_.default(%x, %y) : f32[4, 4]"
    with pytest.raises(AssertionError, match="values: input x differs"):
        check_pass(to_cos, text_of(sin, write, f"return {returned}"))


def test_keep_takes_one_key() -> None:
    case = PASSES["fusion"]
    with pytest.raises(AssertionError, match=r"annotations: meta\['custom'\] of d was"):
        check_pass(case.pass_with("annotation"), case.module(), keep="custom")


def test_integer_inputs_may_be_indices() -> None:
    text = text_of(
        "%i = input : i64[3]",
        "%e = aten.embedding.default(%x, %i) : f32[3, 4]",
        "%y = aten.relu.default(%e) : f32[3, 4]",
        "return %y",
    ).replace("f32[4, 4]", "f32[2, 4]")

    def to_clamp(graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.relu.default):
            node.target, node.args = aten.clamp_min.default, (node.args[0], 0)

    assert check_pass(to_clamp, text, changes={"aten.relu": -1, "aten.clamp_min": 1})


@pytest.mark.parametrize("rtol", [float("inf"), float("nan"), -1, "1e-3"])
def test_tolerance_that_compares_nothing_is_refused(rtol: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="rtol="):
        check_pass(reinplace, DOUBLED, rtol=rtol, atol=0)


def test_changes_name_ops_that_can_occur() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        check_pass(reinplace, DOUBLED, changes={"aten.mull": -1})
    with pytest.raises(TypeError, match="must map ops to ints"):
        check_pass(reinplace, DOUBLED, changes={"aten.mul": (0, 1)})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"use capture\.fx"):
        check_pass(reinplace, capture(torch.sin, torch.ones(2)))  # type: ignore[arg-type]


def test_pass_that_must_change_nothing() -> None:
    check_pass(lambda module: fuse(module, ""), DOUBLED, changes={})
    with pytest.raises(AssertionError, match="change: expected none, found 2 edits"):
        check_pass(lambda module: fuse(module, ""), NORMS, changes={})
    with pytest.raises(AssertionError, match="change: the pass changed nothing"):
        check_pass(lambda module: fuse(module, ""), DOUBLED)


def test_an_equal_op_is_a_change() -> None:
    def to_reshape(graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.view.default):
            node.target = aten.reshape.default

    text = text_of("%y = aten.view.default(%x, [-1]) : f32[16]", "return %y")
    assert not check_pass(to_reshape, text)
    with pytest.raises(AssertionError, match="change: the pass changed nothing"):
        check_pass(to_reshape, DOUBLED)


def test_exception_of_the_pass_is_passed_on() -> None:
    def raises(graph: fx.Graph) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        check_pass(raises, DOUBLED)


def test_graph_of_a_capture_is_checked_with_its_own_constants() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.relu() * torch.tensor([1.0, 2.0])).relu()

    def double_relu(graph: fx.Graph) -> None:
        first, *_ = graph.find_nodes(op="call_function", target=aten.relu.default)
        if len(first.users) == 1:
            node = next(iter(first.users))
            put(node, aten.neg.default, (first,), first)

    captured = capture(function, torch.ones(3, 2))
    found = check_pass(double_relu, captured.fx(captured.forward), changes={"aten.neg": 1})
    assert found.heading() == "1 edit: aten.neg added"


def test_random_state_is_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    check_pass(PASSES["reordering"].pass_with(), ORDER)
    assert torch.equal(torch.rand(2), expected)


def test_annotated_nodes_have_the_names_of_the_text() -> None:
    def tag(graph: fx.Graph) -> None:
        for node in graph.nodes:
            if node.op == "call_function":
                node.meta["custom"] = {"seen": True}

    text = text_of(
        "%layer/neg = aten.neg.default(%x) : f32[4, 4]",
        "%sum = aten.sum.default(%layer/neg) : f32[]",
        "return %sum",
    )
    check_pass(tag, text, annotations={"seen": ["layer/neg", "sum"]})
    with pytest.raises(AssertionError, match="annotations: 'seen' is also on sum_1"):
        check_pass(tag, text, annotations={"seen": ["layer/neg"]})
    with pytest.raises(AssertionError, match="annotations: 'seen' is missing on x"):
        check_pass(tag, text, annotations={"seen": ["layer/neg", "sum", "x"]})


def test_patterns_of_torch_are_a_pass() -> None:
    from torch._inductor.pattern_matcher import (
        PatternMatcherPass,
        fwd_only,
        register_replacement,
    )

    def pattern(x: torch.Tensor) -> torch.Tensor:
        return aten.relu.default(aten.relu.default(x))

    def replacement(x: torch.Tensor) -> torch.Tensor:
        return aten.relu.default(x)

    matcher = PatternMatcherPass(pass_name="relu_relu")
    example = [torch.empty(3, 3)]
    register_replacement(pattern, replacement, example, fwd_only, [matcher])  # type: ignore[arg-type]
    text = text_of(
        "%y = aten.relu.default(%x) : f32[4, 4]",
        "%z = aten.relu.default(%y) : f32[4, 4]",
        "return %z",
    )
    assert check_pass(matcher.apply, text, changes={"aten.relu": -1})


class _Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4,), 2.0))
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)  # type: ignore[operator]
        return x * self.weight


def fold(program: torch.export.ExportedProgram, factor: float = 1.0) -> None:
    """Double the weight, and halve the result."""
    (name,) = program.graph_signature.parameters
    program.state_dict[name] = torch.nn.Parameter(program.state_dict[name] * 2 * factor)
    (node,) = program.graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    with program.graph.inserting_after(node):
        half = program.graph.call_function(aten.div.Tensor, (node, 2.0))
    half.meta = dict(node.meta)
    node.replace_all_uses_with(half, lambda user: user is not half)
    for spec in program.graph_signature.output_specs:
        if spec.arg.name == node.name:
            spec.arg.name = half.name


def test_pass_over_an_exported_program_is_checked_with_its_tensors() -> None:
    program = torch.export.export(_Weighted(), (torch.ones(4),))
    with pytest.raises(AssertionError) as error:
        check_pass(fold, program, changes={"aten.div": 1})
    assert [line.partition(":")[0] for line in problems(error)] == ["not idempotent"]
    check_pass(fold, program, [(torch.ones(4),)], allow="not idempotent")
    with pytest.raises(AssertionError, match=r"values: output 0 differs") as error:
        check_pass(lambda p: fold(p, 1.5), program, allow="not idempotent")
    assert "inputs written" not in str(error.value)
    assert program.state_dict["weight"][0] == 2.0
    with pytest.raises(TypeError, match=r"takes 1 input \(x\), but inputs has 2"):
        check_pass(fold, program, [1, 2])
    for wrong in (reinplace, copy_outputs):
        with pytest.raises(TypeError, match=r"pass program\.graph_module"):
            check_pass(wrong, program)
