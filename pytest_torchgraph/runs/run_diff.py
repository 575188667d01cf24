"""The difference of two saved runs, by cause over all tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import get_args

from ..audit.facts import Cause
from ..errors import TorchGraphError
from ..graph.diff import (
    SIDES,
    Finding,
    Place,
    align_items,
    break_finding,
    break_keys,
    diff_files,
    merge_edits,
    unmatched,
    whole,
)
from ..graph.events import GraphBreak
from ..graph.model import Source
from ..graph.program import Program
from ..graph.text import Header
from ..ops.dtypes import CASTS
from ..words import counted, grouped, listed
from .run_texts import HIDDEN, RunCause, RunCauseKind, RunDiff
from .stored import RUN, Repeat, SavedCapture, SavedRecord, SavedRun, is_run, read_run

_NUMBER_AND_CLASS = re.compile(r"\[\d+\]| of .*")
"""Parts of the label of a fixture that a rename, or a further parameter, changes."""
REMEDY = "runs code that another test compiled: set torchgraph_save_run_isolation = on"
NOTHING = "compiled and captured nothing in both runs"


def diff_runs(base: Path, head: Path) -> RunDiff:
    """Compare two saved runs.

    Raises:
        TorchGraphError: if one of them is not a saved run, or is damaged.
        OSError: if a file cannot be read.
    """
    for path in (base, head):
        if not is_run(path):
            raise TorchGraphError(f"{path} is not a saved run, because it has no {RUN}")
    return _Comparison(read_run(base), read_run(head)).result()


@dataclass
class _Event:
    """A cause that is not an edit, while tests are collected.

    Attributes:
        kind, text, source, finding: see `RunCause`.
        tests: the ids of the tests, as keys.
        deltas: for a graph break, the ops that each test gained or lost.
        left_out: number of graphs that are not compared because of this cause.
    """

    kind: RunCauseKind
    text: str
    source: Source | None
    finding: Finding | None = None
    tests: dict[str, None] = field(default_factory=dict)
    deltas: list[Counter[str]] = field(default_factory=list)
    left_out: int = 0


class _Comparison:
    """A comparison of two runs: collects causes pair of records by pair, then merges them.

    A *label* names a pair of records: the id of a test, or the label of a fixture, whose record
    stands for all tests that use it.
    """

    def __init__(self, old: SavedRun, new: SavedRun) -> None:
        self._runs = old, new
        self._events: dict[Hashable, _Event] = {}  # by kind, and by what makes two events equal
        self._added = 0  # number of calls of `_add`
        self._edits: list[tuple[str, Finding]] = []  # each with the label of its records
        self._diffs: dict[tuple[str, str], list[Finding]] = {}  # by the keys of the graphs
        self._tests_of: dict[str, tuple[str, ...]] = {}  # by label

    def result(self) -> RunDiff:
        """Compare all tests and fixtures that both runs have."""
        old, new = self._runs
        renamed = self._renamed()
        names = {name: name for name in old.tests if name in new.tests} | renamed
        matched = {*names.values()}
        reasons = {name: self._why_not(before, name) for before, name in names.items()}
        compared = [
            (before, name)
            for before, name in names.items()
            if not reasons[name] and self._compiled(before, name)
        ]
        for before, name in compared:
            self._compare((name,), name, old.tests[before], new.tests[name])
        # A fixture is compared once, for all tests that use it.
        by_fixture = grouped(
            (labels, name)
            for before, name in compared
            for labels in _fixtures(old.tests[before].fixtures, new.tests[name].fixtures)
        )
        for labels, tests in by_fixture.items():
            sides = [
                run.fixtures.get(label, SavedRecord())
                for run, label in zip(self._runs, labels, strict=True)
            ]
            self._compare(tuple(tests), " -> ".join(labels), *sides)
        causes = tuple(self._causes())
        notes = [*self._notes(), *([HIDDEN] if any(cause.hides for cause in causes) else ())]
        return RunDiff(
            causes=causes,
            added=tuple(name for name in new.tests if name not in matched),
            removed=tuple(name for name in old.tests if name not in names),
            renamed=tuple(renamed.items()),
            not_compared={name: reason for name, reason in reasons.items() if reason},
            compared=tuple(name for _, name in compared),
            notes=tuple(notes),
            complete=old.info.complete and new.info.complete,
        )

    # -- which tests -------------------------------------------------------------------------------

    def _renamed(self) -> dict[str, str]:
        """Return the tests whose records are equal, and not empty, by their old ids."""
        old, new = self._runs
        gone = [name for name in old.tests if name not in new.tests]
        come = [name for name in new.tests if name not in old.tests]
        keys = [
            {name: self._key(run, name) for name in names if not run.tests[name].is_empty}
            for run, names in ((old, gone), (new, come))
        ]
        pairs: dict[str, str] = {}
        # Several records may be equal. Pair those whose ids have the most in common first: all but
        # the file, the name of the test, the file and the parameters, the parameters, nothing.
        for form in (_in_file, _own_name, _file_and_parameters, _parameters, lambda name: ""):
            waiting = grouped(
                ((key, form(name)), name)
                for name, key in keys[1].items()
                if name not in pairs.values()
            )
            for name, key in keys[0].items():
                if name not in pairs and (found := waiting.get((key, form(name)))):
                    pairs[name] = found.pop(0)
        return pairs

    def _key(self, run: SavedRun, name: str) -> Hashable:
        """Return what a renamed test keeps: what it compiled and captured, but no line numbers."""
        record = run.tests[name]
        return (
            record.outcome,
            record.compiles,
            tuple(run.program(key).key("dataflow") if key else "" for key in record.keys),
            tuple((c.share, c.problem, *map(_code_of, c.breaks)) for c in record.captures),
            tuple(map(_code_of, record.breaks)),
            tuple((each.function, each.reasons) for each in record.recompiles),
            tuple((each.kind, each.function, each.text, each.count) for each in record.eager),
        )

    def _why_not(self, before: str, name: str) -> str:
        """Return why a test is not compared; "" if it is."""
        sides = [run.tests[test] for run, test in zip(self._runs, (before, name), strict=True)]
        outcomes = [side.outcome or "did not finish" for side in sides]
        bad = [
            f"{outcome} in {side}"
            for outcome, side in zip(outcomes, ("base", "head"), strict=True)
            if outcome != "passed"
        ]
        if len(bad) == 2 and outcomes[0] == outcomes[1]:
            return f"{outcomes[0]} in both runs"
        if bad:
            return ", ".join(bad)
        # In another order, the other test may not have compiled the code before.
        if any(side.shared for side in sides) and not self._in_one_order:
            return REMEDY
        # A test whose records are empty needs no reason. The others called something.
        if not (all(side.is_empty for side in sides) or self._compiled(before, name)):
            return NOTHING
        return ""

    def _compiled(self, before: str, name: str) -> bool:
        """Return True if a test, or a fixture that it uses, compiled or captured anything.

        Of code that runs eagerly in both runs because Dynamo skips it, only reasons can differ.
        """
        records: list[SavedRecord] = []
        cuts = []
        for run, test in zip(self._runs, (before, name), strict=True):
            record = run.tests[test]
            used = [record, *(run.fixtures.get(label, SavedRecord()) for label in record.fixtures)]
            records += used
            cuts.append([cut for each in used for cut in each.breaks])
        return any(r.compiles or any(r.keys) for r in records) or any(unmatched(cuts, break_keys))

    @property
    def _in_one_order(self) -> bool:
        """True if both runs ran the same tests in the same order in one process."""
        old, new = (list(run.orders.values()) for run in self._runs)
        return len(old) == len(new) == 1 and old == new

    def _notes(self) -> Iterator[str]:
        """Yield what to know first, see `RunDiff.notes`."""
        old, new = self._runs
        if old.info.torch != new.info.torch:
            yield f"torch {old.info.torch} -> {new.info.torch}"
        versions = []
        for name in sorted({*old.info.versions, *new.info.versions} - {"torch"}):
            was, now = (run.info.versions.get(name) for run in self._runs)
            if was != now:
                versions.append(f"{name} {was or 'missing'} -> {now or 'missing'}")
        if versions:
            yield f"other versions: {listed(versions)}"
        for side, run in zip(("base", "head"), self._runs, strict=True):
            if not run.info.complete:
                yield f"{side} is not complete: {run.info.problem or 'the run did not end'}"

    # -- one test ----------------------------------------------------------------------------------

    def _compare(
        self, tests: tuple[str, ...], label: str, old: SavedRecord, new: SavedRecord
    ) -> None:
        """Collect the causes of the differences of two records."""
        self._tests_of[label] = tests
        before = len(self._edits), self._added
        eager = ([cause for cause in r.eager if cause.kind != "nothing"] for r in (old, new))
        calls = self._compare_eager(label, *eager)
        if old.compiles != new.compiles:
            self._add_share(label, old, new)
        else:
            self._compare_compiled(label, old, new, calls)
        self._compare_captures(label, old.captures, new.captures)
        after = len(self._edits), self._added
        times = [sum(cut.occurrences for cut in record.breaks) for record in (old, new)]
        # The same breaks, met in more or fewer compilations, and nothing else explains it.
        if before == after and times[0] != times[1]:
            cut = new.breaks[0]
            now, was = (counted(number, "time") for number in reversed(times))
            text = f"graph breaks met {now}, were met {was}"
            self._add(label, ("times", text), "break", text, _source(cut))

    def _compare_compiled(
        self, label: str, old: SavedRecord, new: SavedRecord, calls: list[_Event]
    ) -> None:
        """Collect the causes of differences of what was compiled outside captures.

        Args:
            label, old, new: see `_compare`.
            calls: the events of eager calls, which may explain graphs.
        """
        cuts = self._compare_breaks(label, old.breaks, new.breaks)
        if cuts:
            # Another division into graphs: of all graphs of the test, only ops can be compared.
            ops = [_ops(run, r.graphs) for run, r in zip(self._runs, (old, new), strict=True)]
            delta = Counter(ops[1])
            delta.subtract(ops[0])
            for event in cuts if old.graphs != new.graphs else ():
                event.deltas.append(Counter({op: n for op, n in delta.items() if n}))
            return
        # They explain graphs that were compiled again, or that no longer run.
        events = [*self._compare_recompiles(label, old.recompiles, new.recompiles), *calls]
        for finding in self._differences(old.graphs, new.graphs):
            if events and finding.of_graph:
                events[0].left_out += 1
            else:
                self._edits.append((label, finding))

    def _compare_breaks(
        self, label: str, old: Sequence[GraphBreak], new: Sequence[GraphBreak]
    ) -> list[_Event]:
        """Add the graph breaks that one side has, and return their events."""
        events: list[_Event] = []
        for kind, cuts in zip(SIDES, unmatched((old, new), break_keys), strict=True):
            for cut in cuts:
                finding = break_finding(kind, cut, [Place(cut.module, "", ())])
                key = (kind, _code_of(cut), cut.file)
                text = finding.summary
                events.append(self._add(label, key, "break", text, _source(cut), finding))
        return events

    def _compare_recompiles(
        self, label: str, old: Sequence[Repeat], new: Sequence[Repeat]
    ) -> list[_Event]:
        """Add the recompiles that one side has, and return their events."""
        events: list[_Event] = []
        for kind, repeats in zip(SIDES, unmatched((old, new), _recompile_keys), strict=True):
            # The event has the text of the first one of its line.
            for each in sorted(repeats, key=lambda each: not each.limit_hit):
                reason = next(iter(each.reasons), "no reason is known")
                text = f"recompile {kind}: {each.function} ({each.file}:{each.line}): {reason}"
                text += ", up to the limit: later calls run eagerly" * each.limit_hit
                source = each.source or Source(each.file, each.line, "", each.function)
                key = (kind, each.function, each.file)
                events.append(self._add(label, key, "recompile", text, source))
        return events

    def _compare_eager(
        self, label: str, old: Sequence[Cause], new: Sequence[Cause]
    ) -> list[_Event]:
        """Add the eager calls that one side has, or that differ in number; return the events."""
        events: list[_Event] = []
        rest = unmatched((old, new), _eager_keys)
        counts = [{(c.function, c.text): c.count for c in side} for side in rest]
        for number, causes in enumerate(rest):
            for cause in causes:
                key = (cause.function, cause.text)
                was, now = (side.get(key, 0) for side in counts)
                change = "no longer runs eagerly" if was else "now runs eagerly"
                if cause.kind == "limit" and not (was and now):  # its last recompile says so
                    continue
                if was and now:  # both sides have it: add it once, from the new side
                    if number == 0:
                        continue
                    change = f"{now:,} calls run eagerly, was {was:,}"
                place = f" ({cause.file}:{cause.line})" if cause.file else ""
                text = f"{cause.function or 'a compiled callable'}{place} {change}: {cause.text}"
                events.append(self._add(label, (change, *key), "eager", text, _source(cause)))
        return events

    def _add_share(self, label: str, old: SavedRecord, new: SavedRecord) -> None:
        """Add that only one of two records compiled anything."""
        without = new if old.compiles else old
        reason = next((cause for cause in without.eager if cause.kind == "nothing"), None)
        text = "compiles, and compiled nothing"
        if old.compiles:
            text = "compiles nothing, and compiled"
        source = _source(reason) if reason else None
        words = reason.text if reason else "no compiled callable is called"
        if reason is None and without.breaks:
            cut = without.breaks[0]
            source, words = _source(cut), f"{cut.kind} ({cut.file}:{cut.line})"
        text += f": {words}"
        self._add(label, text, "share", text, source)

    def _compare_captures(
        self, label: str, old: Sequence[SavedCapture], new: Sequence[SavedCapture]
    ) -> None:
        """Pair the captures of two records, and compare the pairs."""
        sides = [
            [(run.texts(each.graphs)[0] or each.problem) for each in captures]
            for run, captures in zip(self._runs, (old, new), strict=True)
        ]
        pairs = [*align_items(*sides)]
        rest: list[list[int]] = []
        for number, captures in enumerate((old, new)):
            paired = {pair[number] for pair in pairs}
            rest.append([k for k in range(len(captures)) if k not in paired])
        # The others in order. If one side has more of them, its last ones have no counterpart.
        pairs += zip(*rest, strict=False)
        for k, j in pairs:
            self._compare_capture(label, old[k], new[j])
        for kind, unpaired, other in zip(SIDES, rest, reversed(rest), strict=True):
            if len(unpaired) > len(other):
                text = f"{counted(len(unpaired) - len(other), 'capture')} {kind}"
                self._add(label, text, "edit", text, None)

    def _compare_capture(self, label: str, old: SavedCapture, new: SavedCapture) -> None:
        """Collect the causes of the differences of two captures."""
        if bool(old.graphs) != bool(new.graphs):
            change = "has graphs, and had none" if new.graphs else "has no graphs, and had some"
            text = f"a capture {change}: {old.problem or new.problem}"
            self._add(label, text, "share", text, None)
            return
        cuts = self._compare_breaks(label, old.breaks, new.breaks)
        for finding in self._differences(old.graphs, new.graphs):
            # A finding about a break repeats what `_compare_breaks` has added.
            if not (cuts and finding.graph_break):
                self._edits.append((label, finding))
        if None not in (old.share, new.share) and not cuts:
            was, now = old.share or 0.0, new.share or 0.0
            if now < was:
                text = f"compiled share of a capture fell: {was:.1%} -> {now:.1%}"
                self._add(label, text, "share", text, None)

    def _differences(self, old: str, new: str) -> list[Finding]:
        """Return the findings of two keys of graphs."""
        sides = [*zip(self._runs, (old, new), strict=True)]
        texts = [run.texts(key)[0] for run, key in sides]
        if texts[0] == texts[1]:
            return []
        if (old, new) not in self._diffs:
            # The key "" has no graphs.
            programs = [run.program(key) if key else Program(Header()) for run, key in sides]
            found = diff_files(programs[0], programs[1])[0]
            if found is None:
                raise TorchGraphError("a saved run has op counts, where graphs are saved")
            self._diffs[old, new] = [*map(_by_line, found.findings)]
        return self._diffs[old, new]

    # -- all tests ---------------------------------------------------------------------------------

    def _add(
        self,
        label: str,
        key: Hashable,
        kind: RunCauseKind,
        text: str,
        source: Source | None,
        finding: Finding | None = None,
    ) -> _Event:
        """Add the tests of a label to an event, which is made if it is new.

        Args:
            label: see the class.
            key: equal for equal events of a kind.
            kind, text, source, finding: see `RunCause`.
        """
        self._added += 1
        event = self._events.setdefault((kind, key), _Event(kind, text, source, finding))
        event.tests |= dict.fromkeys(self._tests_of[label])
        return event

    def _causes(self) -> list[RunCause]:
        """Return all causes, the worst first."""
        causes = [*map(self._cause_of_event, self._events.values())]
        old, new = self._runs
        # With another torch, any test may differ because of it.
        upgraded = self._tests_of if old.info.torch != new.info.torch else {}
        # The simplest form of an edit names it: a compiler may have made several ops of one.
        edits = sorted(self._told_apart(), key=lambda edit: len(edit[1].changes))
        for finding in merge_edits(edits, upgraded=upgraded.keys()):
            tests = tuple(
                dict.fromkeys(test for label in finding.files for test in self._tests_of[label])
            )
            # The finding of a label is a finding of its tests: `files` gets their ids.
            data = finding.to_json()
            text = f"{data['what']} in {data['where']}" if data["where"] else data["what"]
            kind: RunCauseKind = "edit" if finding.graph_break is None else "break"
            # `source` reads the first place, and a finding about a whole graph may have none.
            source = finding.source if finding.places else None
            causes.append(RunCause(kind, text, source, tests, replace(finding, files=tests)))
        kinds = get_args(RunCauseKind)
        return sorted(causes, key=lambda cause: (kinds.index(cause.kind), -len(cause.tests)))

    def _told_apart(self) -> list[tuple[str, Finding]]:
        """Return all edits, those of one line with their ops if a graph has several such edits.

        If two layers that run one line exchange their activations, these are two edits of it.
        """
        ops = grouped(
            ((label, finding.graph, finding.identity.line), finding.identity.release)
            for label, finding in self._edits
            if finding.identity.line
        )
        lines = {line for (_, _, line), found in ops.items() if len({*found}) > 1}
        return [
            (label, _with_op(finding, finding.identity.release))
            if finding.identity.line in lines
            else (label, finding)
            for label, finding in self._edits
        ]

    def _cause_of_event(self, event: _Event) -> RunCause:
        """Return an event as a cause, once all tests are collected."""
        tests, text = tuple(event.tests), event.text
        if event.left_out:
            text += f" ({counted(event.left_out, 'graph')} of these tests not compared)"
        if event.deltas:
            text += f" (graphs of {counted(len(event.deltas), 'test')} not compared)"
        # Casts first: an edit beside the break, such as another dtype, shows only here.
        changed = sorted(set().union(*event.deltas), key=lambda op: (not op.startswith(CASTS), op))
        ops = tuple(f"{op} {_signed([delta[op] for delta in event.deltas])}" for op in changed)
        finding = event.finding
        if finding is not None:
            finding = replace(finding, files=tests)
        hides = bool(event.left_out or event.deltas)
        return RunCause(event.kind, text, event.source, tests, finding, ops, hides)


def _fixtures(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the labels of each fixture of a test in both runs.

    The class of the fixture may have a new name, and its parameter another number.
    """
    yield from ((label, label) for label in old if label in new)
    # A module may override a fixture and use it, so that two have one name.
    gone = grouped((_NUMBER_AND_CLASS.sub("", label), label) for label in old if label not in new)
    come = grouped((_NUMBER_AND_CLASS.sub("", label), label) for label in new if label not in old)
    for name in {**gone, **come}:
        # A label that one run lacks is paired with itself, and then with an empty record.
        for was, now in zip_longest(gone.get(name, ()), come.get(name, ())):
            yield was or now, now or was


# -- what ids of renamed tests have in common ------------------------------------------------------


def _in_file(name: str) -> Hashable:
    return name.partition("::")[2]


def _own_name(name: str) -> Hashable:
    """Return the name of the function with its parameters, without file and class."""
    path, bracket, parameters = name.partition("[")
    return path.rpartition("::")[2], bracket, parameters


def _file_and_parameters(name: str) -> Hashable:
    return name.partition("::")[0], _parameters(name)


def _parameters(name: str) -> Hashable:
    return name.partition("[")[2]


# -- keys by which events of two runs match --------------------------------------------------------


def _code_of(cut: GraphBreak) -> tuple[str, str, str]:
    return cut.kind, cut.function, cut.code


# `unmatched` takes what is equal by the first key, then by the second, and so on.


def _recompile_keys(repeat: Repeat) -> Iterator[Hashable]:
    yield repeat.function, repeat.reasons, repeat.limit_hit
    yield repeat.function, repeat.limit_hit
    yield repeat.reasons, repeat.limit_hit  # of a function with a new name


def _eager_keys(cause: Cause) -> Iterator[Hashable]:
    yield cause.function, cause.text, cause.count
    yield cause.text, cause.count  # of a function with a new name


def _source(event: GraphBreak | Cause) -> Source | None:
    return Source(event.file, event.line, event.code, event.function) if event.file else None


def _by_line(finding: Finding) -> Finding:
    """Return a finding that merges with all of its kind on its line, of whatever level.

    One edit has another op in Dynamo's graph of a test than in AOTAutograd's graph of another test.
    """
    return whole(_with_op(finding, finding.kind if finding.places else ""))


def _with_op(finding: Finding, op: str) -> Finding:
    """Return a finding that merges with those of this `Identity.op` on its line."""
    return replace(finding, identity=replace(finding.identity, op=op))


def _signed(numbers: list[int]) -> str:
    """Format the range of some differences, with signs."""
    low, high = f"{min(numbers):+,}", f"{max(numbers):+,}"
    return low if low == high else f"{low} to {high}"


def _ops(run: SavedRun, key: str) -> Counter[str]:
    """Return how often each op ran: a graph of a layer runs once for each layer."""
    total: Counter[str] = Counter()
    if key:
        program = run.program(key)
        for graph in program.graphs:
            for op, count in graph.op_counts.items():
                total[op] += count * program.runs.get(graph.name, 1)
    return total
