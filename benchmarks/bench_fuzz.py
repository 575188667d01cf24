"""Malformed files: a coverage-guided fuzzer on the reader, and texts made to be slow.

`python benchmarks/bench_fuzz.py [executions]`, by default 100,000, about ten minutes; needs
`pip install atheris`. The fuzzer starts from the snapshots of the examples, whole and in pieces,
and from random graphs. A text is a graph or a `GraphFormatError`; Python's audit hook sees no file
opened, no module imported and no code compiled meanwhile; what was read prints, reads back, and is
equal to itself. Then every text of `graph/hostile.py` is read at a size of 1 MB, and what can be
read is printed, compared and told apart from an edited copy. Times are those of the processor,
which other work does not lengthen. Targets: no other exception, and at most 1 s to read 1 MB.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

MEASURED = 5_000
"""Characters from which on an execution's time is taken: below it is the clock's."""


# -- the fuzzer, in a process of its own -----------------------------------------------------------


class Watched:
    """Counts what Python's audit hook reports while it is armed."""

    def __init__(self) -> None:
        self.armed = False
        self.events: Counter[str] = Counter()
        sys.addaudithook(self)

    def __call__(self, event: str, _args: Any) -> None:
        if self.armed:
            self.events[event] += 1


def fuzz(report: str, arguments: list[str]) -> None:
    """Run atheris on the reader; never returns."""
    import atheris

    with atheris.instrument_imports(
        include=["pytest_torchgraph.graph", "pytest_torchgraph.errors"]
    ):
        from pytest_torchgraph.errors import GraphFormatError
        from pytest_torchgraph.graph import (
            Graph,
            Program,
            diff_graphs,
            format_document,
            parse_document,
        )

    outcomes: Counter[str] = Counter()
    slowest = [0.0, 0]
    watched = Watched()

    def read(text: str) -> Program | None:
        watched.armed = True
        start = time.process_time()
        try:
            document = parse_document(text)
        except GraphFormatError:
            outcomes["GraphFormatError"] += 1
            return None
        except BaseException as error:
            outcomes[type(error).__name__] += 1
            raise
        finally:
            watched.armed = False
            took = (time.process_time() - start) / max(len(text), 1) * 1e6
            if len(text) >= MEASURED and took > slowest[0]:
                slowest[:] = took, len(text)
        outcomes["read"] += 1
        return document

    def check(document: Program) -> None:
        header, graphs = document.header, document.graphs
        printed = format_document(graphs, header, "full", fold=False)
        again = parse_document(printed)
        assert format_document(again.graphs, again.header, "full", fold=False) == printed
        assert all(a == b and hash(a) == hash(b) for a, b in zip(graphs, again.graphs, strict=True))
        assert not diff_graphs(graphs, again.graphs)
        plain = parse_document(format_document(graphs, header, fold=False)).graphs
        assert all(a == b for a, b in zip(graphs, plain, strict=True))

    def one(data: bytes) -> None:
        document = read(data.decode("utf-8", "replace"))
        if document is not None and document.graphs:
            check(document)

    warm = Graph.from_text(
        "torchgraph 1\n\nforward @ aot {\n  %x = input\n  %y = f(1)\n  return [%y, %x]\n}\n"
    )
    check(Program(parse_document(warm.to_text()).header, (warm,)))  # what imports when called
    done = 0

    def counted(data: bytes) -> None:
        nonlocal done
        done += 1
        try:
            one(data)
        finally:
            if done % 500 == 0 or sys.exc_info()[0] is not None:
                facts = {"done": done, "outcomes": outcomes, "events": watched.events}
                Path(report).write_text(json.dumps({**facts, "slowest": slowest}), encoding="utf-8")

    atheris.Setup([sys.argv[0], *arguments], counted)
    atheris.Fuzz()


# -- around it -------------------------------------------------------------------------------------


def seeds() -> Iterator[str]:
    """Stored files, whole and with few nodes, and random graphs at each detail."""
    from graph.strategies import graphs
    from hypothesis import HealthCheck, given, settings

    for path in sorted((ROOT / "examples" / "__snapshots__").glob("*/*.tgraph")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        yield text
        inputs = next((k for k, line in enumerate(lines) if "(" in line), 0)
        for k in range(3, inputs, 40):
            yield "\n".join([*lines[:4], *lines[k : k + 3], "  return None", "}"]) + "\n"
        for k in range(inputs, len(lines), 60):
            names = dict.fromkeys(re.findall(r"%[\w./#<>-]+", "\n".join(lines[k : k + 8])))
            given_ = [f"  {name} = input : f32[2]" for name in names]
            called = [f"  {line.lstrip().replace('%', '%new/', 1)}" for line in lines[k : k + 8]]
            yield "\n".join([*lines[:4], *given_, *called, "  return None", "}"]) + "\n"
    drawn: list[str] = []

    @settings(
        max_examples=400, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(graphs())
    def draw(graph: Any) -> None:
        drawn.extend(graph.to_text(detail) for detail in ("ops", "dataflow", "full"))

    draw()
    yield from drawn


WORDS = (
    *(
        "torchgraph 1",
        "torchgraph 2",
        "eager_0 × 2 {",
        "via aot",
        "torch 2.13.0",
        "detail full",
        "detail ops",
        "forward",
    ),
    *("backward", " @ aot {", " : inference", "return [", "return ", "save %", " = input", " = "),
    *(" = saved", "get_attr[", "Tensor.view(", "aten.add.Tensor(", "operator.getitem(", "%x"),
    *(" !mutates %", " !random", " !opaque", " after %", " in ", " : f32[", " stride [", " on "),
    *("slice(", "device(", "complex(", "bytes(", "None", "True", "nan", "-inf", "...", "&", "@"),
    *("`s0`", "{", "}", "1e5", "\\u"),
)


def run_fuzzer(executions: int) -> None:
    """Run the fuzzer until it has had so many executions, and print what it saw."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        for number, text in enumerate(seeds()):
            Path(corpus, f"{number}").write_bytes(text.encode("utf-8", "surrogatepass"))
        words = Path(folder, "words")
        quoted = (word.replace("\\", "\\\\").replace('"', '\\"') for word in WORDS)
        words.write_text("".join(f'"{word}"\n' for word in quoted), encoding="utf-8")
        report = Path(folder, "report")
        options = [f"-atheris_runs={executions}", f"-dict={words}", "-max_len=60000", "-timeout=60"]
        done = subprocess.run(
            [sys.executable, __file__, "--fuzz", str(report), *options, "-seed=1", str(corpus)],
            capture_output=True,
            text=True,
            errors="replace",
            cwd=folder,
        )
        facts = json.loads(report.read_text(encoding="utf-8"))
        edges = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
        print(f"executions         {facts['done']} (counted in steps of 500)")
        print(f"coverage           {edges[-1][0]} edges, {edges[-1][1]} features" if edges else "")
        print(f"outcomes           {facts['outcomes']}")
        print(f"audit events       {facts['events']}")
        print("slowest            {:.3g} s/MB, of {} characters".format(*facts["slowest"]))
        if done.returncode:
            print(done.stderr[-6000:])
            for crash in Path(folder).glob("*-*"):
                if crash.is_file():
                    print(crash.name, repr(crash.read_bytes()[:3000]))
        print(flush=True)


# -- texts made to be slow -------------------------------------------------------------------------


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor, and the result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def run_hostile(size: int = 1_000_000) -> None:
    """Print the slowest texts to read, and what is done with those that can be read."""
    from graph.hostile import REPEATED, everything

    from benchmarks.timing import table
    from pytest_torchgraph.errors import GraphFormatError
    from pytest_torchgraph.graph import Program, diff_graphs, format_document, parse_document

    def read(text: str) -> Program | GraphFormatError:
        try:
            return parse_document(text)
        except GraphFormatError as error:
            return error

    slow: list[tuple[float, str]] = []
    rows: list[tuple[object, ...]] = []
    for name, make in everything():
        text = make(size)
        reading, document = timed(lambda text=text: read(text))
        slow.append((reading / len(text) * 1e6, name))
        if isinstance(document, GraphFormatError) or not document.graphs or name in REPEATED:
            continue
        again, edited = parse_document(text), read(edit(text))
        printing, _ = timed(
            lambda d=document: format_document(d.graphs, d.header, "full", fold=False)
        )
        equality, same = timed(
            lambda d=document, a=again: all(map(lambda x, y: x == y, d.graphs, a.graphs))
        )
        assert same, name
        row = [name, sum(len(g.nodes) for top in document.graphs for g in top.walk())]
        row += [reading, printing, equality]
        if isinstance(edited, Program):
            took, found = timed(lambda d=document, e=edited: diff_graphs(d.graphs, e.graphs))
            row += [took, len(found.findings), timed(found.to_text)[0]]
        rows.append(tuple(row + ["", "", ""][len(row) - 5 :]))
    print(f"{len(slow)} texts of {size} characters; the slowest to read, in s/MB:")
    table(("s/MB", "text"), sorted(slow, reverse=True)[:8])
    print("Those that can be read, in seconds:")
    table(("text", "nodes", "read", "print", "==", "diff", "findings", "told"), rows)


def edit(text: str) -> str:
    """Another op in one place, near the middle."""
    at = text.find("f(", len(text) // 2)
    return text[:at] + "zz" + text[at + 1 :] if at != -1 else text


def main() -> None:
    """Print the figures."""
    if sys.argv[1:2] == ["--fuzz"]:
        fuzz(sys.argv[2], sys.argv[3:])
    random.seed(0)
    run_hostile()
    run_fuzzer(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)


if __name__ == "__main__":
    main()
