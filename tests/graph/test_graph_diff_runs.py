"""Among equal ops in a row, modules and names identify the new one, because dataflow cannot."""

from __future__ import annotations

import pytest
from graph.build import difference
from graph.edits import Nodes, call, given, graph, returned


def run(*names: str) -> Nodes:
    """Return copies in a row, each in the module that its name begins with."""
    nodes = [given("x"), call("start/sin", "sin", ["x"], "start")]
    for name in names:
        nodes.append(call(name, "clone", [nodes[-1].name], name.rpartition("/")[0]))
    return [*nodes, call("end/cos", "cos", [nodes[-1].name], "end"), returned("end/cos")]


RUNS = {
    "the first": (("a/c", "b/c"), ("new/c", "a/c", "b/c")),
    "in the middle": (("a/c", "b/c"), ("a/c", "new/c", "b/c")),
    "the last": (("a/c", "b/c"), ("a/c", "b/c", "new/c")),
    "two at once": (("a/c", "b/c"), ("new/c", "new/c.1", "a/c", "b/c")),
    "two apart": (("a/c", "b/c"), ("new/c", "a/c", "new/c.1", "b/c")),
    "after a renamed copy": (("a/c", "old/c", "b/c"), ("new/c", "a/c", "now/c", "b/c")),
    "in the same module": (("a/c", "a/c.1"), ("a/c", "a/new", "a/c.1")),
    "by module, where no name agrees": (("a/p", "b/p"), ("new/c", "a/c", "b/c")),
    "in a run of a hundred": (
        tuple(f"m{k}/c" for k in range(100)),
        ("new/c", *(f"m{k}/c" for k in range(100))),
    ),
}


@pytest.mark.parametrize("case", RUNS)
@pytest.mark.parametrize("kind", ["added", "removed"])
def test_added_or_removed_op_in_a_run_has_no_matching_module_or_name(case: str, kind: str) -> None:
    few, many = (graph(run(*names)) for names in RUNS[case])
    found = difference(few, many) if kind == "added" else difference(many, few)
    named = found.added if kind == "added" else found.removed
    assert sorted(node.name for node in named) == [
        name for name in RUNS[case][1] if "new" in name
    ], found
    assert not found.changed
    assert not found.rewired


def test_dataflow_takes_precedence_over_names() -> None:
    """The first copy has a second user, so the new copy follows it, regardless of its name."""

    def used(nodes: Nodes, name: str) -> Nodes:
        return [*nodes[:-1], call("other", "tanh", [name]), returned("end/cos", "other")]

    before, after = used(run("a/c"), "a/c"), used(run("z/c", "a/c"), "z/c")
    diff = difference(graph(before), graph(after))
    assert [node.name for node in diff.added] == ["a/c"], diff
    assert len(diff.findings) == 1
    assert not diff.rewired
