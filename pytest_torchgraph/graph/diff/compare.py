"""Compare graphs and programs, with one finding for each edit, as a person would count edits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from ...errors import TorchGraphError
from ...words import format_ranks, grouped, listed
from ..digits import fewest, with_digits
from ..equality import (
    EquivalenceClasses,
    as_captured,
    canonical,
    drop_unshared_facts,
    equal_programs,
    pairing,
    reachable,
)
from ..higher_order import body_names
from ..model import Arg, Atom, Graph, InputRef, Ref, is_projection
from ..program import Program, count_lines
from ..step import InlinedStep, needs_links
from ..text import (
    format_arg,
    format_mesh,
    format_name,
    format_node,
    links_lines,
    ops_in_words,
    runs_in_words,
)
from .comparable_steps import comparable_steps
from .consequences import with_consequences
from .correspondence import REACH, Correspondence
from .costs import attach_costs, name_checkpoints
from .cuts import with_cuts
from .differing import NodeChange
from .findings import (
    Change,
    ChangeKind,
    Finding,
    GraphDiff,
    GraphPair,
    Identity,
    Place,
    digest,
    one_place,
)
from .gradients import SAVED_DIFFER, attach_gradients
from .group import group_changes
from .identify import identify_findings
from .instances import align_instances
from .joining import merge_ranks
from .origins import Origins, pair_bodies, pair_graphs
from .places import merge_equal_edits, merge_same_lines, merge_torch_modules
from .quantized import attach_quantized
from .rules import BODY, INPUT_ORDER, RUNS

MANY_SAVERS = 100
"""Maximum number of forwards to consider as the producer of a saved value, by its name.

If thousands of forwards save values with equal names, considering all would take quadratic time."""

MAX_NAMES = 6
"""Maximum number of added or removed saved values to name."""


def diff_graphs(before: Sequence[Graph], after: Sequence[Graph]) -> GraphDiff:
    """Return the difference of two captures, with one finding for each edit.

    Graphs are compared with graphs of the same kind, and eager graphs with eager graphs. If a
    forward differs, the differences in backward graphs are consequences of its edits and are listed
    with them. So are ops that autograd ran eagerly between the compiled graphs, such as the sum of
    two gradients. An added or removed compiled backward graph is a finding of its own, and so is an
    eager graph with a changed run count.
    """
    # The links are compared as they were captured, because inlining leaves none between graphs.
    captured = before, after
    steps = comparable_steps(before, after)
    if steps is not None:
        before, after = (step.graphs for step in steps)
    findings, graphs, origins = find_changes(before, after, steps)
    # The order matters: `attach_quantized` needs findings with one place each, `merge_same_lines`
    # needs identities, `name_checkpoints` would take a lost gradient for a checkpoint because other
    # values are saved, `attach_costs` needs the final numbers of the findings, and `with_cuts` adds
    # up the costs of the findings that follow from a cut.
    findings = attach_quantized(findings, origins)
    findings = merge_equal_edits(findings, before, after, origins)
    findings = identify_findings(findings, before, after, origins)
    findings = merge_same_lines(findings, origins)
    findings = attach_gradients(merge_torch_modules(findings, after, origins))
    findings = name_checkpoints(findings, before, after)
    findings = attach_costs(findings, origins, before, after)
    if steps is not None:
        findings = with_cuts(findings, *steps, origins)
    if not findings and any(map(needs_links, captured)) and not equal_programs(*captured):
        findings = [_links_finding(*captured)]
    return GraphDiff(tuple(map(origins.with_reasons, findings)), tuple(graphs), origins=origins)


def _links_finding(before: Sequence[Graph], after: Sequence[Graph]) -> Finding:
    """Return the finding of steps that are linked otherwise, if no op shows it.

    The finding has no changes, so `of_cut` gives its kind.
    """
    old, new = (set(links_lines(side)) for side in (before, after))
    lines = [f"{'-+'[line in new]} {line.strip()}" for line in sorted(old ^ new)]
    summary = "the steps are not equal, although no op and no link between graphs shows it"
    if lines:
        summary = f"the links between graphs differ: {listed(lines, 2)}"
    place = Place("", after[0].name, ())
    identity = Identity((digest("links", *lines),))
    return Finding((place,), summary, identity=identity, of_cut="changed", details=tuple(lines))


def find_changes(
    before: Sequence[Graph],
    after: Sequence[Graph],
    steps: tuple[InlinedStep, InlinedStep] | None = None,
) -> tuple[list[Finding], list[GraphPair], Origins]:
    """Return the findings with one place each, the raw lists, and the origins of the changes.

    If a forward differs, the changes of its backward are consequences of these edits.

    Args:
        before, after: the graphs.
        steps: the inlined steps that these graphs are; `None` for graphs as they were captured.
    """
    findings: list[Finding] = []
    backward: list[Finding] = []
    # Findings about whole graphs come last, and never have consequences.
    of_graphs: list[Finding] = []
    graphs: list[GraphPair] = []
    # The old-to-new names of each forward, and the numbers of the forwards that save each name.
    names_of_forwards: list[Mapping[str, str]] = []
    savers: dict[str, list[int]] = {}
    # Compiled graphs that run equally often, as a forward and its backward do, are one finding.
    ran_otherwise: dict[tuple[int, int], list[tuple[Graph, Graph]]] = {}
    classes = EquivalenceClasses()
    origins = Origins(steps)
    sides = _in_common_form(before, after)
    origins.instances = align_instances(
        *(map(classes.flat, (g for g in side if g.kind != "backward")) for side in sides)
    )
    for old, new in pair_graphs(*sides, classes):
        if old is not None and new is not None:
            old, new = drop_unshared_facts(old, new)
        origins.pairs.append((old, new))
        # `pair_graphs` yields backwards last, so all findings of forwards are known by then.
        kind = (old or new).kind  # type: ignore[union-attr]
        target = backward if kind == "backward" else findings
        if old is None or new is None:
            graphs.append(GraphPair(old, new))
            if kind != "backward":
                findings.append(_graph_finding(old, new))
            elif findings and (old or new).eager:  # type: ignore[union-attr]
                # Autograd runs such ops, a sum of gradients for example, because of the edit.
                backward.append(_ops_finding(old, new))
            else:
                of_graphs.append(_graph_finding(old, new))
            continue
        saved = _names_of_saver(old, names_of_forwards, savers) if kind == "backward" else {}
        start = len(graphs)
        names = _compare_graphs(old, new, saved, target, graphs, classes, origins)
        if (pair := GraphPair(old, new)).runs is not None:
            if old.eager:
                of_graphs.append(_run_count_finding([(old, new)], origins))
            else:
                ran_otherwise.setdefault(pair.runs, []).append((old, new))
            if len(graphs) == start:  # the graphs are equal, and only their run counts differ
                graphs.append(pair)
        if kind == "forward":
            for name in {ref.name for ref in old.saved}:
                savers.setdefault(name, []).append(len(names_of_forwards))
            names_of_forwards.append(names)
    if findings and backward:
        findings = with_consequences(findings, backward, origins)
    else:
        findings += backward
    findings += [_run_count_finding(pairs, origins) for pairs in ran_otherwise.values()]
    findings += of_graphs
    return findings, graphs, origins


def _in_common_form(
    before: Sequence[Graph], after: Sequence[Graph]
) -> tuple[Sequence[Graph], Sequence[Graph]]:
    """Return two captures in canonical form, with float constants of equally many digits."""
    # The canonical form drops the aliases of a captured graph, and keeps those of a given one.
    # Unless all graphs were given, none counts as given, so that all drop them.
    if not all(graph.given for graph in (*before, *after)):
        before, after = [*map(as_captured, before)], [*map(as_captured, after)]
    digits = fewest(graph.digits for graph in (*before, *after))
    old, new = ([with_digits(graph, digits) for graph in side] for side in (before, after))
    return canonical(old), canonical(new)


def _names_of_saver(
    backward: Graph,
    names_of_forwards: Sequence[Mapping[str, str]],
    savers: Mapping[str, Sequence[int]],
) -> Mapping[str, str]:
    """Return the old-to-new names of the forward that saved a backward's values.

    The forward is the one that saves the most names of the backward's inputs; the first of several,
    or if no name is saved. Empty if there is no forward.

    Args:
        backward: the old backward.
        names_of_forwards: the old-to-new names of each forward.
        savers: the numbers of the forwards that save each name.
    """
    votes = Counter(k for node in backward.inputs for k in savers.get(node.name, ())[:MANY_SAVERS])
    best = max(votes, key=lambda k: (votes[k], -k), default=0)
    return names_of_forwards[best] if names_of_forwards else {}


def _compare_graphs(
    old: Graph,
    new: Graph,
    saved_names: Mapping[str, str],
    findings: list[Finding],
    graphs: list[GraphPair],
    classes: EquivalenceClasses,
    origins: Origins,
) -> Mapping[str, str]:
    """Compare two graphs and their bodies. Return the old-to-new names of matched nodes.

    Args:
        old, new: the graphs, in canonical form.
        saved_names: for a backward, the old-to-new names of the values that its forward saved.
        findings: receives the findings of the graphs and of their bodies.
        graphs: receives the raw lists of the graphs and of their bodies, if they differ.
        classes: classes of graphs with equal dataflow.
        origins: receives the matching, the changes and the reasons.
    """
    if classes.equal(old, new):
        return _names_of_equal_graphs(old, new)
    instances, flat = origins.instances, classes.flat(new)
    # A list that lost a module has other numbers from there on. The new graph is matched with its
    # modules under the numbers that they had.
    former = {name: instances.former(other) for name, other in saved_names.items()}
    changes, groups, following = group_changes(classes.flat(old), instances.view(flat), former)
    # The matching consists of node numbers, so from here on the nodes can have their own names.
    matching = changes.m
    matching.b = changes.b = flat
    matching.flats = matching.a, flat
    origins.matchings.append(matching)
    label = _graph_label(old, new)
    change_of = {
        part: _make_change(matching, part, label, origins)
        for group in (*groups, *following)
        for part in group
    }
    origins.add_joins(changes, {part.key: change_of[part] for part in change_of})
    # The changes of each edit, and those that follow from it.
    edits, follows = (
        [[change_of[part] for part in group] for group in parts] for parts in (groups, following)
    )
    graphs.append(
        _make_pair(old, new, [change for group in (*edits, *follows) for change in group])
    )
    own_findings = [
        one_place(group, consequences=others, details=changes.order_lines(parts))
        for parts, group, others in zip(groups, edits, follows, strict=True)
    ]
    callers = _callers_by_body(old), _callers_by_body(new)
    for body_old, body_new in pair_bodies(old, new, matching.forward):
        inside: list[Finding] = []
        _compare_graphs(body_old, body_new, {}, inside, graphs, classes, origins)
        if inside:
            calls = {*callers[0].get(body_old.name, ()), *callers[1].get(body_new.name, ())}
            own_findings = _merge_body(own_findings, inside, (old, new), calls, origins)
    # The graphs are not equal, so there must be a finding. One exception: if nothing in a backward
    # differs but the values that an edited forward saved for it, the edit shows them, and its text
    # is equal. A second matching means that a forward differs: forwards are compared first.
    if not own_findings and not (saved_names and origins.matchings[1:]):
        own_findings.append(one_place([_output_change(matching, label, origins)]))
    own_findings = _merge_reordered_inputs(own_findings, old, new, origins)
    names = matching.names()
    findings.extend(_explain_saved(finding, old, new, names) for finding in own_findings)
    if outputs := _exchanged_outputs(own_findings, old, new, names):
        change = _output_change(matching, label, origins)
        findings.append(one_place([change], f"{label}: {listed(outputs, 3)}", details=outputs))
    return names


def _callers_by_body(graph: Graph) -> dict[str, list[int]]:
    """Map each body's name to the ids of the nodes that refer to it."""
    nodes = graph.nodes if graph.subgraphs else ()
    return grouped((name, id(node)) for node in nodes for name in body_names(node))


def _merge_body(
    own_findings: list[Finding],
    body_findings: list[Finding],
    graphs: tuple[Graph, Graph],
    calls: Container[int],
    origins: Origins,
) -> list[Finding]:
    """Return the findings of a caller and of a body, with what follows from the body's edit in it.

    For example, if a body saves one more value for its backward, the body returns one more value,
    and each call of the body has one more result. The changed return and the results of the calls
    become changes of the first edit in the body.

    Args:
        own_findings: the findings of the caller.
        body_findings: the findings of the body, at least one.
        graphs: the calling graph, old and new.
        calls: the ids of the nodes that refer to the body.
        origins: receives the reasons.
    """

    def is_call_result(change: Change) -> bool:
        node, graph = change.node, graphs[change.after is not None]
        producer = graph.by_name.get(node.refs[0]) if node.refs else None
        return producer is not None and id(producer) in calls and is_projection(node, producer)

    def is_consequence(finding: Finding) -> bool:
        return all(None in (c.before, c.after) and is_call_result(c) for c in finding.changes)

    def is_return(finding: Finding) -> bool:
        return all(change.node.kind == "output" for change in finding.changes)

    edits = [finding for finding in body_findings if not is_return(finding)]
    if not edits:  # the return is the edit
        return own_findings + body_findings
    derived = [f for f in body_findings if is_return(f)] + [
        f for f in own_findings if is_consequence(f)
    ]
    first = edits[0]
    for finding in derived:
        origins.because(BODY, finding.changes, first.changes[0])
    changes = (*first.changes, *(change for finding in derived for change in finding.changes))
    edits[0] = one_place(
        changes, first.summary, consequences=first.consequences, details=first.details
    )
    return [finding for finding in own_findings if finding not in derived] + edits


def _merge_reordered_inputs(
    findings: list[Finding], old: Graph, new: Graph, origins: Origins
) -> list[Finding]:
    """Merge all reordered inputs into one finding with a summary, which comes first."""

    def is_reordered(finding: Finding) -> bool:
        return all(c.kind == "rewired" and c.node.kind == "placeholder" for c in finding.changes)

    changes = [
        change for finding in findings if is_reordered(finding) for change in finding.changes
    ]
    if not changes:
        return findings
    origins.because(INPUT_ORDER, changes, changes[0])
    names = [f"%{format_name(change.node.name)}" for change in changes]
    roles = {change.node.op for change in changes}
    before, after = ([n.name for n in graph.inputs if n.op in roles] for graph in (old, new))
    role = changes[0].node.op
    description = "saved values" if role == "saved" else f"{role}s"
    # Inputs of one role can have the same order among themselves, and other positions among all.
    if len(roles) > 1 or before == after:
        before, after = ([node.name for node in graph.inputs] for graph in (old, new))
        description = "inputs"
    if len(before) == len(after):
        description = f"the same {len(after)} {description}"
    description += f" in a different order ({listed(names, 2)})"
    summary = f"{changes[0].graph}: {description}"
    orders = (f"{word}: {', '.join(names)}" for word, names in (("was", before), ("is", after)))
    return [
        one_place(changes, summary, details=orders),
        *(finding for finding in findings if not is_reordered(finding)),
    ]


def _output_change(m: Correspondence, graph: str, origins: Origins) -> Change:
    """Return a change of the output node, for a difference that no other node shows."""
    last = NodeChange("changed", len(m.a.nodes) - 1, len(m.b.nodes) - 1)
    return _make_change(m, last, graph, origins)


def _exchanged_outputs(
    findings: Sequence[Finding], old: Graph, new: Graph, names: Mapping[str, str]
) -> list[str]:
    """Return the outputs that changed beside the findings of the ops, in words.

    An output that was replaced by an added op, or that was removed, follows from that edit, and so
    does one on the other side of a moved op. Outputs without names are compared in `differing` if
    their number differs.

    Args:
        findings: the findings of the ops.
        old, new: the graphs.
        names: the old-to-new names of matched nodes.
    """
    outputs: list[str] = []
    if not (old.output and new.output) and len(old.outputs) != len(new.outputs):
        return outputs
    changes = [c for finding in findings for c in (*finding.changes, *finding.consequences)]
    returns = [finding for finding in findings for c in finding.changes if c.node.kind == "output"]
    # Such a finding is about the outputs and lists them already; see `_explain_saved`.
    if any(len(finding.changes) == 1 or finding.kind == "changed" for finding in returns):
        return outputs
    # `_differing_outputs` gives both values their new names; `back` has the old ones.
    back = {name: other for other, name in names.items()}
    # The names of the edited nodes of each side.
    edited = [
        {c.before.name for c in changes if c.before and c.kind != "changed"},
        {c.after.name for c in changes if c.after and c.kind != "changed"},
    ]
    for value, other, words in _differing_outputs(old, new, names):
        ends = value, other
        # An unknown output, or one that was added or removed, follows from another edit.
        if any(isinstance(v, Ref) and v.name not in back for v in ends):
            continue
        if isinstance(value, Ref) and isinstance(other, Ref):
            # If an edit lies between the two values, the output follows from it.
            before = _reached(old, back[value.name], edited[0])
            after = _reached(new, other.name, edited[1])
            if back[other.name] in before or value.name in after:
                continue
        # A tensor that is no value of this graph is an `Atom`. Two `Atom`s are constants, such as
        # dtypes.
        elif isinstance(value, Atom) != isinstance(other, Atom):
            continue
        outputs.append(words)
    return outputs


def _reached(graph: Graph, name: str, edited: Container[str]) -> Container[str]:
    """Return the values that a value is computed from through edited ops and their projections."""
    steps = iter(range(REACH))  # each edited op takes one, so that long chains end

    def operands(name: str) -> Sequence[str]:
        node = graph.by_name[name]
        is_passed = name in edited or node.op == "operator.getitem"
        return node.refs if is_passed and next(steps, None) is not None else ()

    return reachable([name], operands)


def _explain_saved(finding: Finding, old: Graph, new: Graph, names: Mapping[str, str]) -> Finding:
    """Add a summary if the finding changes only the target's outputs or the saved values.

    Any other finding is returned unchanged.

    Args:
        finding: a finding of these graphs.
        old, new: the graphs.
        names: the old-to-new names of matched nodes.
    """
    returns = [change for change in finding.changes if change.node.kind == "output"]
    # An input that the target only returns is added or removed together with the output.
    rest = [c for c in finding.changes if c.node.kind not in ("output", "placeholder")]
    outputs = []
    if returns and not rest:
        outputs = [words for _, _, words in _differing_outputs(old, new, names)]
    if outputs:
        summary = f"{finding.graph}: {listed(outputs, 3)}"
        return one_place(finding.changes, summary, details=outputs)
    # What is left to explain: output nodes of equal text, whose graphs save different values.
    before, after = finding.before, finding.after
    if len(finding.changes) != 1 or before is None or after is None or after.kind != "output":
        return finding
    if finding.kind == "rewired":  # The graph returns a different value with the same name.
        return finding
    if format_node(before) != format_node(after):
        return finding
    old_saved = [names.get(ref.name, ref.name) for ref in old.saved]
    new_saved = [ref.name for ref in new.saved]
    if old_saved == new_saved:
        return finding
    parts = [f"+ %{name}" for name in new_saved if name not in old_saved]
    parts += [f"- %{name}" for name in old_saved if name not in new_saved]
    description = listed(parts, MAX_NAMES) or "in a different order"
    summary = f"{finding.graph}: {SAVED_DIFFER} ({description})"
    return one_place(finding.changes, summary, details=[f"saved: {part}" for part in parts])


def _differing_outputs(
    old: Graph, new: Graph, names: Mapping[str, str]
) -> Iterator[tuple[Arg, Arg, str]]:
    """Yield each differing output of the target, old and new, with words; none if unknown.

    An old value that is a node has the name of the node's partner in `new`. A missing output is
    `None`.
    """
    if old.output is None or new.output is None:
        return
    old_values = {path: _rename_ref(value, names) for path, value in _output_leaves(old)}
    new_values = dict(_output_leaves(new))
    for path, value in new_values.items():
        words = _format_output(value)
        if path not in old_values:
            yield None, value, f"output {path!r} is new: {words}"
        elif (was := _format_output(old_values[path])) != words:
            yield old_values[path], value, f"output {path!r} was {was}, and is now {words}"
    for path, value in old_values.items():
        if path not in new_values:
            yield value, None, f"output {path!r} was removed (it was {_format_output(value)})"


def _output_leaves(graph: Graph) -> Sequence[tuple[str, Arg]]:
    """Return the outputs of the target by path; if they have no paths, by position."""
    if graph.output:
        return graph.output
    returned = graph.nodes[-1].args[0]
    values = returned if isinstance(returned, tuple) else (returned,)
    return [(str(position), value) for position, value in enumerate(values)]


def _format_output(value: Arg) -> str:
    """Return an output in words, as findings print it."""
    return f"input %{format_name(value.name)}" if isinstance(value, InputRef) else format_arg(value)


def _rename_ref(value: Arg, names: Mapping[str, str]) -> Arg:
    return Ref(names.get(value.name, value.name)) if isinstance(value, Ref) else value


def _names_of_equal_graphs(old: Graph, new: Graph) -> Mapping[str, str]:
    """Return the old-to-new names of all nodes of two equal graphs."""
    partner = pairing(old, new)
    assert partner is not None
    return {node.name: new.nodes[j].name for node, j in zip(old.nodes, partner, strict=True)}


def _make_change(m: Correspondence, part: NodeChange, graph: str, origins: Origins) -> Change:
    """Return the change of a node, and record its origin."""
    before = m.a.nodes[part.before] if part.before != -1 else None
    after = m.b.nodes[part.after] if part.after != -1 else None
    name = origins.graph_of(graph, before, after)  # `graph` may be an inlined step
    within = (m.a.graph, m.b.graph)
    change = Change(part.kind, name, before, after, _renamed_operands(m, part), within)
    origins.add(change, m, part)
    return change


def _renamed_operands(m: Correspondence, part: NodeChange) -> tuple[tuple[str, str], ...]:
    """Return pairs of old and new names of the values that a kept or added node uses.

    Equal names, and values without a partner, are left out.
    """
    if part.after == -1:
        return ()
    kept = m.a.operands[part.before] if part.before != -1 else ()
    # The text of a node also names the values that it writes to.
    effects = m.b.nodes[part.after].effects
    written = [m.b.index[effect.target.name] for effect in effects if effect.target]
    pairs = [(p, m.forward[p]) for p in kept]
    pairs += [(m.backward[q], q) for q in (*m.b.operands[part.after], *written)]
    names = dict.fromkeys(
        (m.a.nodes[p].name, m.b.nodes[q].name) for p, q in pairs if min(p, q) >= 0
    )
    return tuple((old, new) for old, new in names if old != new)


def _make_pair(old: Graph, new: Graph, changes: Iterable[Change]) -> GraphPair:
    """Return the raw lists of two graphs that differ."""
    by_kind = grouped((change.kind, change) for change in changes)
    pairs = {
        kind: tuple((c.before, c.after) for c in by_kind.get(kind, ()) if c.before and c.after)
        for kind in ("changed", "rewired")  # whose changes have both nodes
    }
    return GraphPair(
        old,
        new,
        added=tuple(change.node for change in by_kind.get("added", ())),
        removed=tuple(change.node for change in by_kind.get("removed", ())),
        changed=pairs["changed"],
        rewired=pairs["rewired"],
    )


def _graph_finding(old: Graph | None, new: Graph | None) -> Finding:
    """Return the finding of an added graph, without an old one, or of a removed graph."""
    graph = new or old
    assert graph is not None
    kind: ChangeKind = "added" if old is None else "removed"
    node = graph.nodes[-1]  # the output stands for the graph
    within = (graph, graph)  # by side; nobody reads the side without the node
    change = Change(kind, graph.name, node if old else None, node if new else None, (), within)
    noun = f"{graph.kind} graph"
    if graph.eager:
        noun = "eager graph" if graph.kind == "forward" else f"eager {noun}"
    cause = graph.cause
    location = f", at {cause.file}:{cause.line}: {cause.code.strip()}" if cause is not None else ""
    summary = f"{noun} {graph.name!r} {kind} ({ops_in_words(graph)}){location}"
    return one_place((change,), summary=summary, of_graph=True)


def _ops_finding(old: Graph | None, new: Graph | None) -> Finding:
    """Return all ops of an added or removed graph as one finding, with the output last."""
    graph = new or old
    assert graph is not None
    kind: ChangeKind = "added" if old is None else "removed"
    nodes = [node for node in graph.nodes if node.kind != "placeholder"]
    return one_place(
        Change(kind, graph.name, node if old else None, node if new else None, (), (graph, graph))
        for node in nodes
    )


def _run_count_finding(pairs: Sequence[tuple[Graph, Graph]], origins: Origins) -> Finding:
    """Return the finding for graphs with the same change of their run count; at least one pair."""
    labels = [_graph_label(old, new) for old, new in pairs]
    changes = [
        Change("changed", label, old.nodes[-1], new.nodes[-1])
        for label, (old, new) in zip(labels, pairs, strict=True)
    ]
    origins.because(RUNS, changes, changes[0])
    old, new = pairs[0]
    summary = f"{', '.join(labels)} {runs_in_words(new.runs)}, before: {old.runs}"
    return one_place(changes, summary, of_graph=True)


def _graph_label(old: Graph, new: Graph) -> str:
    """Return the name of two corresponding graphs: `old -> new` if it differs."""
    return new.name if old.name == new.name else f"{old.name} -> {new.name}"


def diff_programs(old: Program, new: Program) -> tuple[GraphDiff | None, list[str]]:
    """Return the difference of two programs: of their graphs, or of each class of equal ranks.

    Ranks are compared once for each pair of classes of equal ranks.

    Returns:
        The difference, and a line for each op count that differs. The difference is `None` if one
        side has only op counts.

    Raises:
        TorchGraphError: if the two sides differ in their meshes or ranks.
    """
    if not (old.sections or new.sections):
        if (old.counts or new.counts) and not (old.graphs and new.graphs):
            return None, differing_counts(old, new)
        return diff_graphs(old.graphs, new.graphs), []
    pairs = [(ranks, *diff_programs(*programs)) for ranks, *programs in same_ranks(old, new)]
    counts = [f"{format_ranks(ranks)}: {line}" for ranks, _, lines in pairs for line in lines]
    return merge_ranks((ranks, diff) for ranks, diff, _ in pairs), counts


def same_ranks(old: Program, new: Program) -> Iterator[tuple[tuple[int, ...], Program, Program]]:
    """Yield each group of ranks with equal graphs on both sides, with its old and new program.

    Raises:
        TorchGraphError: if the two sides differ in their meshes or ranks.
    """
    # The order of the dimensions counts, which `==` of two dicts ignores.
    if [*old.mesh.items()] != [*new.mesh.items()] or old.ranks != new.ranks:
        differing = "ranks" if [*old.mesh.items()] == [*new.mesh.items()] else "meshes"
        raise TorchGraphError(
            f"the {differing} differ: before {format_ranks(old.ranks)} of mesh "
            f"({format_mesh(old.mesh)}), now {format_ranks(new.ranks)} of mesh "
            f"({format_mesh(new.mesh)}). Compare captures of equal meshes and ranks"
        )
    for ranks, before in old.sections:
        for others, after in new.sections:
            if shared := {*ranks}.intersection(others):
                yield tuple(sorted(shared)), before, after


def differing_counts(old: Program, new: Program) -> list[str]:
    """Return a line for each changed run count of a graph, and for each changed op count.

    Args:
        old, new: the programs. If a program has graphs, their ops are counted.
    """
    lines = [
        f"{graph} {runs_in_words(new.runs[graph])}, before: {old.runs[graph]}"
        for graph in sorted(old.runs.keys() & new.runs.keys())
        if old.runs[graph] != new.runs[graph]
    ]
    return lines + count_lines(old.op_counts, new.op_counts)
