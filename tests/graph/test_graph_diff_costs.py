"""The cost of an edit, as a figure of its finding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from graph.build import difference, graph
from graph.edits import EDITS, Nodes, chain, exchange
from graph.strategies import checked, eager_graphs, graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph import Cost
from pytest_torchgraph.graph import Graph, Ref, TensorMeta, diff_graphs, need_saved
from pytest_torchgraph.graph.cost import owners_of_saved, storage_bytes, total_flops
from pytest_torchgraph.graph.diff import costs as module
from pytest_torchgraph.graph.diff.findings import one_place
from pytest_torchgraph.graph.diff.words import cost_text
from pytest_torchgraph.words import amount

SAVES = {"relu": "result", "tanh": "result", "sin": "operands", "cos": "operands"}
"""Values that an op saves for its backward, as in autograd. `mm` and `mul` save their operands."""


def step(
    *lines: str, saved: Sequence[str] = (), level: str = "aot", kind: str = "forward"
) -> Graph:
    """Return a graph of these lines on an %x of 24 bytes that saves these values."""
    parsed = graph("\n".join(lines), f"{kind} @ {level}")
    return replace(parsed, saved=tuple(map(Ref, saved)))


def costs(before: Sequence[Graph], after: Sequence[Graph]) -> list[tuple[int | None, int | None]]:
    found = [finding.cost for finding in diff_graphs(before, after).findings]
    return [(each.flops, each.saved_bytes) for each in found]


def saved_bytes(graphs: Sequence[Graph]) -> int:
    need_saved(graphs)
    return sum(
        storage_bytes(n, graph) * graph.runs for graph in graphs for n in owners_of_saved(graph)
    )


# -- the costs of findings sum up to the difference of the graphs ---------------------------------


def saving(nodes: Nodes, rng: random.Random | None = None) -> Graph:
    """Return a forward on square matrices that saves what autograd would, or random values."""
    meta = TensorMeta("float32", (8, 8))
    nodes = [node if node.kind == "output" else replace(node, result=meta) for node in nodes]
    saved: dict[str, None] = {}
    for node in nodes:
        if not node.is_call:
            continue
        word = node.op.split(".")[1]
        kept = SAVES.get(word, "operands" if word in ("mm", "mul") else "")
        for name in (node.name,) if kept == "result" else node.refs if kept else ():
            saved[name] = None
    if rng is not None:
        names = [node.name for node in nodes if node.is_call]
        saved = dict.fromkeys(rng.sample(names, rng.randrange(len(names))))
    refs = tuple(map(Ref, saved))
    return Graph(tuple(nodes), "forward", "forward", "aot", refs)


def models(length: int, seed: int) -> Nodes:
    """Chain ops that save their operand or their result, and views."""
    nodes = chain(length, seed, ("sin", "relu", "neg", "t", "add", "mul"))
    return [
        replace(node, op="aten.mm.default") if node.op == "aten.mul.default" and k % 2 else node
        for k, node in enumerate(nodes)
    ]


def differ(before: Graph, after: Graph) -> tuple[int, int]:
    pairs = [(total_flops((g,), times_run=True), saved_bytes((g,))) for g in (before, after)]
    return pairs[1][0] - pairs[0][0], pairs[1][1] - pairs[0][1]


def test_saved_value_is_attributed_among_several_edits() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        nodes = edited = models(180, seed)
        for start in (120, 60, 0):
            at = start + rng.randrange(4, 50)
            kind = rng.choice(["insert", "exchange", "remove", "rewire"])
            edited = (EDITS[kind](edited, at, rng) or exchange(edited, at)).nodes
        before, after = saving(nodes), saving(edited)
        known = zip(*costs([before], [after]), strict=True)
        assert tuple(map(sum, known)) == differ(before, after)  # type: ignore[arg-type]


@checked
@given(st.integers(2, 60), st.integers(0, 10**6), st.sampled_from(sorted(EDITS)))
def test_single_edit_costs_the_whole_difference(length: int, seed: int, kind: str) -> None:
    rng = random.Random(seed)
    nodes = models(length, seed)
    edit = EDITS[kind](nodes, rng.randrange(2, len(nodes) - 1), rng)
    before, after = saving(nodes, rng), saving(edit.nodes if edit else nodes, rng)
    edit_costs = costs([before], [after])
    if len(edit_costs) < 2:
        assert edit_costs == [differ(before, after)][: len(edit_costs)]
        assert edit_costs or differ(before, after) == (0, 0)
    elif all(None not in cost for cost in edit_costs):
        assert tuple(map(sum, zip(*edit_costs, strict=True))) == differ(before, after)  # type: ignore[arg-type]


def total_of(figure: Callable[[Sequence[Graph]], int], graphs: Sequence[Graph]) -> int | None:
    try:
        return figure(graphs)
    except Exception:  # a formula that rejects the arguments of a random graph
        return None


ANY = st.lists(graphs() | eager_graphs(), min_size=1, max_size=2)


@pytest.mark.slow("many random graphs")
@settings(checked, max_examples=25)
@given(ANY, ANY, st.booleans())
def test_costs_of_any_two_programs_sum_up_if_known(
    before: list[Graph], after: list[Graph], more: bool
) -> None:
    if more:
        after = [*before, *after]
    edit_costs = costs(before, after)
    for number, figure in enumerate((lambda g: total_flops(g, times_run=True), saved_bytes)):
        known = [cost[number] for cost in edit_costs]
        sums = total_of(figure, before), total_of(figure, after)
        if None not in (*known, *sums):
            assert sum(each or 0 for each in known) == (sums[1] or 0) - (sums[0] or 0)


# -- which edit a saved value belongs to -----------------------------------------------------------

UP = "%u/up = aten.neg.default(%x) : f32[2, 3]"


def activated(first: str, second: str, *saved: str) -> Graph:
    return step(
        UP,
        f"%a/act = aten.{first}.default(%u/up) : f32[2, 3]",
        "%m/mid = aten.neg.default(%a/act) : f32[2, 3]",
        "%n/mid = aten.neg.default(%m/mid) : f32[2, 3]",
        f"%b/act = aten.{second}.default(%n/mid) : f32[2, 3]",
        "return %b/act",
        saved=saved,
    )


def test_op_that_saves_its_operand_costs_its_bytes() -> None:
    before = activated("neg", "neg")
    assert costs([before], [activated("cos", "neg", "u/up")]) == [(0, 24)]
    assert costs([activated("cos", "neg", "u/up")], [before]) == [(0, -24)]
    # The other op saves its operand instead of its result, which has the same size.
    assert costs([activated("exp", "neg", "a/act")], [activated("cos", "neg", "u/up")]) == [(0, 0)]


def test_two_edits_each_cost_their_own_saved_values() -> None:
    both = costs([activated("neg", "neg")], [activated("cos", "exp", "u/up", "b/act")])
    assert both == [(0, 24), (0, 24)]
    only = costs([activated("neg", "neg")], [activated("abs", "cos", "n/mid")])
    assert only == [(0, 0), (0, 24)]


def test_saved_value_with_two_possible_edits_is_not_attributed() -> None:
    before = activated("neg", "neg")
    assert costs([before], [activated("abs", "sign", "m/mid")]) == [(0, None), (0, None)]


def test_saved_value_of_two_edits_is_attributed_to_the_one_with_a_backward() -> None:
    def program(first: str, second: str, saved: str = "") -> list[Graph]:
        forward = step(
            UP,
            f"%a/act = aten.{first}.default(%u/up) : f32[2, 3]",
            f"%b/act = aten.{second}.default(%u/up) : f32[2, 3]",
            "return [%a/act, %b/act]",
            saved=[saved] if saved else [],
        )
        taken = f"%{saved} = saved : f32[2, 3]\n" if saved else ""
        use = f"%b/mul = aten.mul.Tensor(%t1, %{saved})" if saved else "%b/mul = aten.neg(%t1)"
        tangents = "%t0 = tangent : f32[2, 3]\n%t1 = tangent : f32[2, 3]"
        backward = graph(
            f"%a/neg = aten.neg.default(%t0) : f32[2, 3]\n{use} : f32[2, 3]\n"
            "return [%a/neg, %b/mul]",
            "backward: backward @ aot",
            taken + tangents,
        )
        return [forward, backward]

    first, second = diff_graphs(program("neg", "abs"), program("sign", "cos", "u/up")).findings
    assert (first.cost, second.cost) == (Cost(0, 0), Cost(0, 24))
    assert "saved" not in str(first)
    assert "saves 1 more value for the backward: + %u/up" in str(second)


def test_edited_op_is_not_charged_for_a_later_op_that_saves_its_result() -> None:
    def program(first: str, second: str, *, saves: bool) -> list[Graph]:
        forward = step(
            f"%a/act = aten.{first}.default(%x) : f32[2, 3]",
            "%v = aten.t.default(%a/act) : f32[3, 2]",
            f"%b/act = aten.{second}.default(%v) : f32[3, 2]",
            "return %b/act",
            saved=["v"] if saves else [],
        )
        taken = "%v = saved : f32[3, 2]\n" if saves else ""
        use = "aten.mul.Tensor(%t0, %v)" if saves else "aten.neg.default(%t0)"
        backward = graph(
            f"%b/use = {use} : f32[3, 2]\nreturn %b/use",
            "backward: backward @ aot",
            f"{taken}%t0 = tangent : f32[3, 2]",
        )
        return [forward, backward]

    before = program("neg", "neg", saves=False)
    assert costs(before, program("sign", "cos", saves=True)) == [(0, 0), (0, 24)]


def test_saved_projection_is_attributed_to_its_producer() -> None:
    def normed(op: str, *saved: str) -> Graph:
        return step(
            f"%n = aten.{op}.default(%x) : (f32[2, 3], f32[2, 1])",
            "%mean = operator.getitem(%n, 1) : f32[2, 1]",
            "%out = operator.getitem(%n, 0) : f32[2, 3]",
            "%y2 = aten.neg.default(%out) : f32[2, 3]",
            "%y3 = aten.neg.default(%y2) : f32[2, 3]",
            f"%y4 = aten.{'abs' if saved else 'neg'}.default(%y3) : f32[2, 3]",
            "return [%y4, %mean]",
            saved=saved,
        )

    edit_costs = costs([normed("native_layer_norm")], [normed("other_norm", "mean")])
    assert edit_costs == [(0, 8), (0, 0)]


def test_a_view_that_is_saved_costs_its_base() -> None:
    lines = [UP, "%v = aten.t.default(%u/up) : f32[3, 2]", "%e = aten.neg.default(%v) : f32[3, 2]"]
    edited = [*lines[:2], "%w = aten.t.default(%v) : f32[2, 3]", lines[2]]
    after = step(*edited, "return [%e, %w]", saved=["v", "w"])
    assert costs([step(*lines, "return [%e, %v]", saved=["u/up"])], [after]) == [(0, 0)]
    assert costs([step(*lines, "return [%e, %v]")], [after]) == [(0, 24)]


def product(inner: int, first: str = "") -> Graph:
    """Return a product of 8 FLOPs per inner index. Its factors are results of other ops."""
    x = "c" if first else "x"
    lines = (
        *([first] if first else []),
        f"%a = aten.neg.default(%{x}) : f32[2, {inner}]",
        f"%b = aten.abs.default(%w) : f32[{inner}, 2]",
        "%mm = aten.mm.default(%a, %b) : f32[2, 2]",
        "return %mm",
    )
    inputs = f"%x = input : f32[2, {inner}]\n%w = input : f32[{inner}, 2]"
    return graph("\n".join(lines), inputs=inputs)


def test_unchanged_op_costs_more_on_larger_operands() -> None:
    # Neither factor can change its inner size alone, so both are one edit. The size of the result
    # is unchanged.
    assert costs([product(3)], [product(5)]) == [(8 * (5 - 3), 0)]
    cloned = product(3, "%c = aten.clone.default(%x) : f32[2, 3]")
    assert costs([product(3)], [cloned]) == [(0, 0)]


# -- graphs as a whole -----------------------------------------------------------------------------

MM = "%m = aten.mm.default(%x, %y) : f32[2, 2]"
RUN = replace(
    graph(
        f"{MM}\n%e = aten.exp.default(%m) : f32[2, 2]\nreturn %e",
        "eager_0: forward @ dispatch",
        "%x = input : f32[2, 3]\n%y = input : f32[3, 2]",
    ),
    eager=True,
    saved=(Ref("e"),),
)


def test_graph_cost_is_multiplied_by_its_runs() -> None:
    head = step("return %x")
    assert costs([head], [head, RUN]) == [(24, 16)]
    assert costs([head, replace(RUN, runs=3)], [head]) == [(-72, -48)]
    assert costs([head, RUN], [head, replace(RUN, runs=5)]) == [(4 * 24, 4 * 16)]


def test_an_edit_in_a_graph_that_also_runs_more_often() -> None:
    nodes = [node for node in RUN.nodes if node.name != "e"]
    nodes[-1] = replace(nodes[-1], args=(Ref("m"),))
    without = replace(RUN, nodes=tuple(nodes), saved=())
    assert costs([without], [replace(RUN, runs=5)]) == [(0, 5 * 16), (4 * 24, 0)]


def test_edit_cost_is_multiplied_by_the_runs_of_its_graph() -> None:
    more = replace(RUN.nodes[2], name="mm", args=(Ref("m"), Ref("m")))
    twice = replace(RUN.nodes[3], args=(Ref("mm"),))
    edited = replace(RUN, nodes=(*RUN.nodes[:3], more, twice, RUN.nodes[4]))
    assert costs([replace(RUN, runs=5)], [replace(edited, runs=5)]) == [(5 * 16, 0)]


def test_inputs_in_another_order_cost_nothing() -> None:
    lines = "%a = aten.sub.Tensor(%x, %y) : f32[2, 3]\nreturn %a"
    before, after = (
        graph(lines, inputs="\n".join(f"%{name} = input : f32[2, 3]" for name in names))
        for names in ("xyz", "zxy")
    )
    assert costs([before], [after]) == [(0, 0)]


# -- unknown costs ---------------------------------------------------------------------------------


def test_edit_cost_is_unknown_at_levels_without_sizes() -> None:
    lines = ("%a = {0}(%x) : f32[2, 3]", "return %a")
    for level, known in (("fx", (None, None)), ("dynamo", (None, None)), ("export", (0, None))):
        before, after = (
            step(*(line.format(f"aten.{op}.default") for line in lines), level=level)
            for op in ("sin", "cos")
        )
        assert costs([before], [after]) == [known]
        assert costs([before], []) == [known]


def test_edit_cost_with_symbolic_sizes() -> None:
    def squared(op: str, *saved: str, dtype: str = "f32") -> Graph:
        parsed = graph(
            f"%a = aten.{op}.default(%x, %x) : {dtype}[s0, s0]\n"
            "%b = aten.neg.default(%x) : f32[s0, s0]\nreturn [%a, %b]",
            inputs="%x = input : f32[s0, s0]",
        )
        return replace(parsed, saved=tuple(map(Ref, saved)))

    # The size of an unchanged node is not needed.
    assert costs([squared("mul", "b")], [squared("add", "b")]) == [(0, 0)]
    assert costs([squared("mul")], [squared("mm")]) == [(None, 0)]
    assert costs([squared("mul")], [squared("add", "a")]) == [(0, None)]
    wider = squared("mul", "a", dtype="f64")
    assert costs([squared("mul", "a")], [wider]) == [(0, None)]


def test_edit_cost_of_an_op_without_an_applicable_formula() -> None:
    def using(call: str, *, shape: str = "[2, 3]") -> Graph:
        return step(f"%a = aten.neg.default(%x) : f32{shape}", f"%b = {call}", "return %b")

    plain = using("aten.neg.default(%a) : f32[2, 3]")
    for call in ("mine.kernel.default(%a)", "aten.mm.default(%a, %a)", "aten.mm.default(7)"):
        for each in (costs([plain], [using(call)]), costs([using(call)], [plain])):
            assert [flops for flops, _ in each] == [None], call
    # Unchanged nodes on the same shapes cost the same before and after.
    before, after = using("mine.kernel.default(%a)"), using("mine.kernel.default(%x)")
    assert [flops for flops, _ in costs([before], [after])] == [0]


def test_edit_cost_with_an_unknown_result() -> None:
    before = step("%a = aten.exp.default(%x)", "return %a")
    assert costs([before], [replace(before, saved=(Ref("a"),))]) == [(0, None)]


# -- the value and its words -----------------------------------------------------------------------


def test_edit_cost_is_computed_lazily_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    computed = module.compute_costs
    monkeypatch.setattr(module, "compute_costs", lambda *all: calls.append(1) or computed(*all))
    diff = difference(activated("neg", "neg"), activated("cos", "exp", "u/up", "b/act"))
    assert not calls
    assert [finding.cost.saved_bytes for finding in diff.findings] == [24, 24]
    assert len(calls) == 1
    assert "cost" not in repr(diff.findings[0])


def test_edit_cost_of_a_finding_without_a_difference_is_none() -> None:
    change = difference(activated("neg", "neg"), activated("cos", "neg")).findings[0].changes[0]
    assert one_place([change]).cost == Cost(None, None)


def test_edit_cost_line_has_the_known_figures() -> None:
    diff = difference(activated("neg", "neg"), activated("cos", "neg", "u/up"))
    assert str(diff) == (
        "1 edit: aten.neg -> aten.cos in a\n"
        "~ changed in a [forward]\n"
        "    before  %a/act = aten.neg.default(%u/up) : f32[2, 3]\n"
        "    after   %a/act = aten.cos.default(%u/up) : f32[2, 3]\n"
        "    costs   +0 FLOP, +24 B saved"
    )
    nothing = difference(activated("neg", "neg"), activated("cos", "neg"))
    assert "costs" not in str(nothing)
    assert str(difference(step("return %x"), RUN)).splitlines()[-1] == (
        "    costs   +24 FLOP, +16 B saved"
    )
    saved = difference(activated("cos", "neg", "u/up"), activated("cos", "neg"))
    assert str(saved.findings[0]) == (
        "~ forward: different values are saved for the backward (- %u/up)\n"
        "    costs   +0 FLOP, -24 B saved"
    )


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(0, 0), ""),
        (Cost(None, None), ""),
        (Cost(None, 0), ""),
        (Cost(None, 1_234_567), "+1.2 MB saved"),
        (Cost(-999, None), "-999 FLOP"),
        (Cost(2_000, 0), "+2.0 kFLOP, +0 B saved"),
    ],
)
def test_edit_cost_in_words(cost: Cost, text: str) -> None:
    assert cost_text(cost) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (-65_536, "-65.5 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (3 * 10**12, "3.0 TB"),
        (10**22, "10,000.0 EB"),
    ],
)
def test_numbers_with_prefixes(count: int, text: str) -> None:
    assert amount(count, "B") == text
