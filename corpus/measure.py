"""What the package makes of a case, beside the independent account of the same case."""

from __future__ import annotations

import re
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from pytest_torchgraph import Capture, CaptureError, Graph, Node, capture
from pytest_torchgraph.graph import equal_programs, parse_text

from .account import Counts, count, sums
from .case import CORPUS, Case, seed

VIAS = ("dispatch", "aot")
NO_TENSOR_OP = re.compile(
    r"(_?operator|math|torch\.sym_\w+|torch\._sym_\w+|aten\.sym_\w+|builtins)\b|\w+$"
)
"""What a graph calls and the dispatcher does not see: arithmetic of sizes, and `getitem`."""


def made(name: str) -> Case:
    """The case, and the random state that it starts from.

    A weight of zeros, which some models begin with, is random here: all outputs would be zero, and
    a comparison with eager would compare nothing.
    """
    seed(0)
    found = CORPUS[name].make()
    if isinstance(found.target, torch.nn.Module):
        for weight in found.target.parameters():
            if weight.dim() > 1 and weight.is_floating_point() and not weight.any():
                torch.nn.init.normal_(weight, std=0.1)
    seed(1)
    return found


# -- the account -----------------------------------------------------------------------------------


def account(name: str, via: str) -> dict[str, Any]:
    """What is dispatched when the case runs without the package, and how long that took."""
    found = made(name)
    start = time.process_time()
    try:
        counts, computed = count(found, compiled=via == "aot")
    except Exception as problem:
        return {
            "broken": f"{type(problem).__name__}: {problem}",
            "traceback": traceback.format_exc(),
        }
    seconds = time.process_time() - start
    kept = {place: dict(ops) for place, ops in counts.items()}
    return {"seconds": seconds, "counts": kept, "sums": computed}


def computes_the_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two runs without the package, one eager and one compiled, are equal bit for bit."""
    return bool(one["sums"] == other["sums"])


# -- the capture -----------------------------------------------------------------------------------


def captured(name: str, via: str) -> dict[str, Any]:
    """What the package captures of the case, or why it refuses."""
    found = made(name)
    start = time.process_time()
    try:
        with found.context():
            result = capture(
                found.target,
                *found.args,
                via=via,
                loss_fn=found.loss_fn,
                **found.kwargs,
            )
            seconds = time.process_time() - start
            said = {"seconds": seconds, "breaks": None, **described(result, via)}
            said["output"] = sums(result.output)
            said["wrong"] = wrong(result)
            if not equal_programs(parse_text(result.to_text()).graphs, result.program):
                raise AssertionError("its text reads back as other graphs")
    except CaptureError as refusal:
        return {"refused": str(refusal), "seconds": time.process_time() - start}
    except Exception as problem:
        return {
            "crashed": f"{type(problem).__name__}: {problem}",
            "traceback": traceback.format_exc(),
        }
    return said


def described(result: Capture, via: str) -> dict[str, Any]:
    """The op counts of a capture, and what is known of the ops that ran eagerly."""
    said: dict[str, Any] = {
        "graphs": len(result.graphs),
        "counts": {place: dict(ops) for place, ops in counted(result, via).items()},
    }
    if via == "aot":
        said["breaks"] = len(result.breaks)
        try:
            said["islands"] = len(result.eager)
            said.update(islands(result.eager))
        except CaptureError as refusal:
            said["no_eager"] = str(refusal)
        try:
            said["share"] = result.compiled_share
        except (AttributeError, CaptureError):
            said["share"] = None
        try:
            result.assert_no_eager_ops()
            said["strict"] = ""
        except AssertionError as problem:
            said["strict"] = str(problem).partition("\n")[0]
        except (AttributeError, CaptureError) as problem:
            said["strict"] = f"{type(problem).__name__}: {problem}".partition("\n")[0]
    return said


def counted(result: Capture, via: str) -> Counts:
    """How often each op of a capture ran, by phase and place."""
    counts: Counts = {}
    eager: Iterable[Graph] = ()
    if via == "aot":
        try:
            eager = result.eager
        except CaptureError:
            eager = ()
    for place, graphs in (("graph", result.graphs), ("eager", eager)):
        for graph in graphs:
            phase = "backward" if graph.kind == "backward" else "forward"
            ops = counts.setdefault(f"{phase} {place}", Counter())
            for node in calls(graph):
                ops[node.op] += graph.runs
    return counts


def calls(graph: Graph) -> list[Node]:
    """The calls of a graph that the dispatcher sees; what is in bodies is their caller's."""
    return [n for n in graph.nodes if n.is_call and not NO_TENSOR_OP.match(n.op)]


def islands(graphs: Iterable[Graph]) -> dict[str, Any]:
    """How many eager ops there are, and how many have a source line and a module."""
    said: Counter[str] = Counter()
    lost: list[str] = []
    for graph in graphs:
        phase = "backward" if graph.kind == "backward" else "forward"
        for node in calls(graph):
            said[f"{phase}_ops"] += 1
            said[f"{phase}_runs"] += graph.runs
            said[f"{phase}_module"] += bool(node.module)
            said[f"{phase}_line"] += node.source is not None
            if node.source is None:
                lost.append(f"{graph.name}: {node.op} in {node.module or 'no module'}")
    return {"eager": dict(said), "no_line": lost}


def wrong(result: Capture) -> list[str]:
    """What else does not hold of a capture: its text, and that it computes what eager does.

    That is asked with a tolerance for what rounding makes of a network in train mode.
    """
    found = []
    for graph in result.graphs:
        if Graph.from_text(graph.to_text()) != graph:
            found.append(f"{graph.name}: its text is another graph")
    try:
        result.assert_matches_eager(rtol=1e-3, atol=1e-4, strides=True)
    except AssertionError as problem:
        found.append(str(problem).partition("\n")[0])
    except CaptureError as problem:
        found.append(f"assert_matches_eager: {str(problem).partition(chr(10))[0]}")
    return found


# -- the comparison --------------------------------------------------------------------------------


def computes_nothing(op: str) -> bool:
    """Whether an op is in no graph via dispatch if its result is unused, or cannot be counted.

    These are views, `_unsafe_view`, which torch does not declare as one, queries (`prim`), and
    methods of a tensor, such as `tolist`, which reach no dispatch mode.
    """
    if op == "aten._unsafe_view.default" or op.startswith(("prim.", "Tensor.")):
        return True
    found: Any = torch.ops
    for name in op.split("."):
        found = getattr(found, name, None)
    return bool(getattr(found, "is_view", False))


def compare(via: str, ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Where the counts of a capture are not those of the account, in words."""
    own = {place: Counter(ops) for place, ops in ours["counts"].items()}
    ran = {
        place: Counter({op: n for op, n in ops.items() if not NO_TENSOR_OP.match(op)})
        for place, ops in theirs["counts"].items()
    }
    pairs = []
    for phase in ("forward", "backward"):
        if via == "dispatch":
            both = [ops for place, ops in ran.items() if place.startswith(phase)]
            yours: Counter[str] = sum(both, Counter())
            mine = own.get(f"{phase} graph", Counter())
            for op in filter(computes_nothing, {*mine, *yours}):
                mine.pop(op, None)
                yours.pop(op, None)
            pairs.append((phase, mine, yours))
        else:
            places = f"{phase} graph", f"{phase} eager"
            pairs += [(at, own.get(at, Counter()), ran.get(at, Counter())) for at in places]
    found = []
    if "sums" in theirs and ours.get("output") != theirs["sums"][: len(ours.get("output", ()))]:
        found.append(f"output: {ours.get('output')}, without the package {theirs['sums']}")
    for place, mine, yours in pairs:
        many, few = dict(mine - yours), dict(yours - mine)
        found += [f"{place}: too many {many}"] if many else []
        found += [f"{place}: too few {few}"] if few else []
    return found
