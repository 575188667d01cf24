"""Mutate the inputs of every reader, and read each in a child with little memory and time.

    python tests/fuzz.py FIRST COUNT [READER ...]

Mutation N depends only on N: the reader, the file, the edits. A fall is printed with its N:

- an exception other than the documented ones (a command ends with 0, 1 or 2),
- output with a control character or a workflow command,
- a file outside the root that was written or removed,
- more than `SECONDS` of CPU or `MEBIBYTES` of memory.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from graph.hostile import PIECES  # noqa: E402
from graph.repeated import repeated_text  # noqa: E402
from graph.strategies import HOSTILE  # noqa: E402

from pytest_torchgraph import GraphFormatError, diff, load  # noqa: E402
from pytest_torchgraph.cli import main  # noqa: E402
from pytest_torchgraph.errors import TorchGraphError, make_printable  # noqa: E402
from pytest_torchgraph.graph import Graph, parse_text  # noqa: E402
from pytest_torchgraph.runs import RunInfo, RunWriter  # noqa: E402
from pytest_torchgraph.words import printable  # noqa: E402

HTML = import_module("pytest_torchgraph.report.page.html")
SECONDS, MEBIBYTES = 20, 1024

RANKS = """torchgraph 3
via aot, torch 2.13.0
mesh dp=2, tp=2

ranks 0-1

forward {
  %x = input : f32[2, 4]
  %y = _c10d_functional.all_reduce.default(%x, "sum", "0") : f32[2, 4] !communicates
  return %y
}

ranks 2-3

forward {
  %x = input : f32[2, 4]
  return %x
}
"""
FACTS = """torchgraph 4
via inductor, torch 2.13.0, detail full, digits 4

forward × 2 {
  body: forward {
    %p = input : f32[s0]
    return %p
  }
  parameters
  buffers
  %x = input : f32[s0, `2*s0 + 1`] stride [4, 1] on "cuda:0"
  %c = constant(1.5) : f32[]
  %h = higher_order.wrap(@body, %x, dtype=torch.float32, flag=True) : (f32[s0], i64[]) !random
  %fc/mm = aten.mm.default(%x, %fc.weight: f32[4, 4], %fc.running: buffer f32[4]) in "m.0"
  %w = aten.add_.Tensor(%x, 1, alpha=-0.5) : f32[2, 4] !mutates %x after %fc/mm
  return [%w, slice(0, None, 2), {"k": [1, inf]}, device("cpu"), complex(1.0, nan), &"odd"]
  output logits = %w
  save %fc/mm
}

eager_0 × 3 {
  %y = input : f32[2]
  %z = Tensor.view(%y, 2) : f32[2] sparse_coo
  return %z
}

backward {
  %t = tangent : f32[2]
  return %t
}
"""
COUNTS = "torchgraph 4\nvia aot, detail ops\n\nforward {\n  2 aten.mm.default\n  1 a.b\n}\n"
FOLDED = """torchgraph 2
via aot, torch 2.13.0

forward {
  %x = input : f32[2, 4]
  each layer.* {
    %/a = aten.relu.default($1) : f32[2, 4]
    each .heads.* b {
      %/q = aten.mm.default(%./a, $$1) : f32[2, 4]
      %/k = aten.mm.default(%/q, %/q) : f32[2, 4]
    }
    .heads.0 .. 3 b: $$1 = %/a
    %/o = aten.add.Tensor(%.heads.3/k, 1) : f32[2, 4]
  }
  layer.0: $1 = %x
  layer.1 .. 9: $1 = %layer.[n-1]/o
  but layer.3 .. 4 {
    ~ %/o = aten.add.Tensor(%.heads.3/k, 2) : f32[2, 4]
  }
  return %layer.9/o
}
"""


@cache
def texts() -> list[str]:
    """Return the stored graphs that are mutated, of versions 1 to 4."""
    stored = [path.read_text("utf-8") for path in sorted(HERE.glob("graph/stored/*.tgraph"))]
    assert len(stored) == 2
    random_texts = [repeated_text(seed) for seed in range(4)]
    folded = [Graph.from_text(text).to_text() for text in random_texts]
    return [*stored, RANKS, FACTS, COUNTS, FOLDED, *random_texts, *folded]


def update_of(text: str) -> str:
    """Return a pending update that stores this text."""
    target = "__snapshots__/test_a/test_a.tgraph"
    old = text.replace("relu", "gelu")
    data = {
        **{"torchgraph_update": 2, "headline": "", "accept": "", "test": "test_a.py::test_a"},
        **{"target": target, "text": text, "stored": old, "refused": ""},
        "digests": {target: hashlib.sha256(old.encode()).hexdigest()},
        **{"sources": {"0" * 16: "x = 1"}, "lines": {}},
    }
    return json.dumps(data)


PAGE = {
    "versions": {"torch": "2.13.0", "pytest": "9", "Python": "3"},
    **{"others": 1, "crashed": 0, "failures": {}, "comparisons": {}, "accept": ""},
    **{"facts": {}, "shards": []},
}
TEST = {
    **{"id": "test_a.py::test_a", "outcome": "failed", "seconds": 0.1, "message": "a"},
    **{"where": "test_a.py:1", "place": ["test_a.py", 0], "summary": "", "counts": {}},
}


def page_of(text: str) -> str:
    """Return the data of the page of a run with one test: its run, and its test with details."""
    return json.dumps({"run": PAGE, "test": TEST, "details": {"captures": [], "text": text}})


def run_of(text: str) -> str:
    """Return a saved run with one test: its environment, its line, its graphs and their lines."""
    place = {"file": "m.py", "line": 3, "function": "f"}
    cut = {**place, "kind": "k", "reason": "r", "hint": "", "code": "c", "stack": []}
    repeat = {**place, "reasons": ["size"], "limit_hit": False, "source": None}
    eager = {**place, "kind": "eager", "text": "why", "code": "", "count": 2}
    capture = {"graphs": "", "share": 0.5, "breaks": [], "problem": "none"}
    record = {
        **{"outcome": "passed", "compiles": True, "graphs": "", "captures": [capture]},
        **{"breaks": [{**cut, "module": "", "compile_id": ""}], "recompiles": [repeat]},
        **{"eager": [eager], "shared": False, "fixtures": ["fixture a"]},
    }
    info = {"format": 1, "kind": "pytest-torchgraph run", "id": "a", "torch": "2.13.0"}
    return json.dumps(
        {
            "info": {**info, "versions": {"torch": "2.13.0"}, "complete": True, "problem": ""},
            "line": {"run": "a", "name": "test_a.py::test_a", "record": record, "fixture": False},
            "text": text,
            "sources": {"lines": [["m.py", 3, "x", "f", False]], "graphs": [[0, -1]]},
        }
    )


def as_page(text: str) -> str:
    """Return the page that has the data of `page_of`, or a page with this text as data."""
    parts = HTML.Parts()
    try:
        data = json.loads(text)
        test = {**data["test"], "part": parts.add(data["details"])}
        whole = {"format": HTML.FORMAT, "about": "", "warning": "", "audit": None, "causes": []}
        whole |= {"failures": [], "tests": [test], "search": parts.add([text[:99]])}
        return str(HTML.page({**whole, "run": parts.add(data["run"])}, parts.texts))
    except (ValueError, KeyError, TypeError, RecursionError):
        return f'<script type="application/json" id="data">{text}</script>\n'


BASELINE = json.dumps(
    {
        "torchgraph-audit": 2,
        "torch": {
            "2.13": {
                "tests": {
                    "test_a.py::test_a": {
                        **{"graphs": 2, "ops": 5, "backends": ["inductor"], "compiles": True},
                        **{"causes": {"a.py:3 f: print": 1}, "calls": ["a.py f"]},
                    }
                },
                "functions": {"a.py f": {"ops": [2, 3], "backends": ["inductor"], "nested": True}},
            }
        },
    }
)


# -- mutations -------------------------------------------------------------------------------------

WORDS = (
    *PIECES,
    *HOSTILE,
    *(
        "\x1b[31m",
        "\x9b31m",
        "\u202e",
        "\\u001b",
        "\\n::error::",
        "##[group]",
        "::stop-commands::x",
    ),
    *("-1", "9223372036854775808", "9" * 500, "1e999", "0 .. 99999", "NaN", "Infinity", "null"),
    *("../../outside/a.tgraph", "/etc/passwd", "a." * 300, "[" * 200, "1, " * 100, "</script >"),
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e999,
    10**400,
    "",
    "../x",
    [],
    {},
    [[]],
    "\x1b",
    float("nan"),
)


OPS = re.compile(r"(?<= = )[a-z_]+\.[\w.]+(?=\()")
NODE_LINES = re.compile(r"(?<=\])$(?=\n *(?:%|return))", re.MULTILINE)
NUMBERS = re.compile(r"(?<=[\[ ])\d+(?=[\],)])")


def still_readable(rng: random.Random, text: str) -> str:
    """Return the text with other ops, numbers and modules, so that most results can be read."""
    for _ in range(rng.choice((1, 2, 5))):
        pattern = rng.choice((OPS, NODE_LINES, NUMBERS))
        places = [*pattern.finditer(text)]
        if not places:
            continue
        place, word = rng.choice(places), json.dumps(rng.choice(WORDS).replace("\ud800", ""))
        if pattern is NUMBERS:
            word = str(rng.choice((0, 1, 7, 99, 2**31, 2**63 - 1)))
        elif pattern is NODE_LINES:
            word = f" in {word}"
        text = text[: place.start()] + word + text[place.end() :]
    return text


def mutated(rng: random.Random, text: str, others: list[str]) -> str:
    """Return the text with one to five edits."""
    if rng.random() < 0.5:
        return still_readable(rng, text)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((0, 0, 1, 1, 3, 20, 200)))
        kind = rng.randrange(8)
        if kind < 3:
            text = text[:start] + rng.choice(WORDS) + text[end:]
        elif kind == 3:
            text = text[:start] + text[end:]
        elif kind == 4:
            text = text[:end] + text[start:end] * rng.choice((1, 2, 50)) + text[end:]
        elif kind == 5:
            other = rng.choice(others)
            at = rng.randrange(len(other) + 1)
            text = text[:start] + other[at : at + rng.choice((5, 50, 500))] + text[end:]
        elif kind == 6:
            numbers = [*re.finditer(r"\d+", text)] or [re.match("", text)]
            number = rng.choice(numbers)
            assert number is not None
            word = rng.choice(("0", "-1", "99999", str(2**63), "7" * 300, "1.5"))
            text = text[: number.start()] + word + text[number.end() :]
        else:
            lines = text.split("\n")
            line = lines.pop(rng.randrange(len(lines)))
            lines.insert(rng.randrange(len(lines) + 1), line)
            text = "\n".join([*lines, *[line] * rng.randrange(2)])
    return text


def mutated_json(rng: random.Random, text: str, others: list[str]) -> str:
    """Return a JSON text with another value, another key or a mutated text in it."""
    if rng.random() < 0.3:
        return mutated(rng, text, others)
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 2))):
        holders = [*holders_of(data)]
        holder = rng.choice(holders)
        key = rng.choice([*holder]) if isinstance(holder, dict) else rng.randrange(len(holder))
        value = holder[key]
        if isinstance(value, str) and rng.random() < 0.6:
            holder[key] = mutated(rng, value, others)
        elif isinstance(holder, dict) and rng.random() < 0.3:
            holder[rng.choice((str(rng.choice(WORDS)), "evil"))] = holder.pop(key)
        else:
            # A copy: a list that holds an edit would be another one for the next mutation.
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return json.dumps(data)


def holders_of(value: Any) -> Iterator[Any]:
    """Yield all objects and lists with items inside a JSON value."""
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from holders_of(item)


# -- readers ---------------------------------------------------------------------------------------


def command(*words: str) -> None:
    assert main(words) in (0, 1, 2)


def read_graph(rng: random.Random, old: str, new: str) -> None:
    """Read a stored graph in every form of output."""
    Path("a.tgraph").write_text(old, "utf-8", "backslashreplace")
    Path("b.tgraph").write_bytes(new.encode("utf-8", "surrogatepass"))
    commands = (
        *(("show", "b.tgraph"), ("show", "b.tgraph", "--flat"), ("show", "b.tgraph", "--ops")),
        *(("show", "b.tgraph", "--table"), ("show", "b.tgraph", "--cost", "--size=s0=8")),
        *(("show", "b.tgraph", "--collectives"), ("diff", "a.tgraph", "b.tgraph", "--all")),
        ("diff", "b.tgraph", "a.tgraph", "--format=markdown"),
        ("diff", "a.tgraph", "b.tgraph", "--format=json"),
        ("render", "b.tgraph", "o.dot"),
        ("render", "b.tgraph", "o.dot", "--heat=flops", "--rank=0"),
        ("render", "b.tgraph", "o.dot", "--against=a.tgraph"),
    )
    for words in rng.sample(commands, 3):
        command(*words)
    with suppress(TorchGraphError):
        capture = load("b.tgraph")
        assert capture == load("b.tgraph")
        print(printable(repr(capture)))


def read_inline(rng: random.Random, old: str, new: str) -> None:
    """Compare a text in a test, and print it as pytest does."""
    from pytest_torchgraph import assert_graph_text

    try:
        graph = Graph.from_text(Graph.from_text(texts()[0]).to_text())
        assert_graph_text(graph, new.partition("\n\n")[2] if rng.random() < 0.8 else new)
    except (GraphFormatError, AssertionError, ValueError) as error:
        make_printable(error)
        print(error)
    with suppress(GraphFormatError):
        parse_text(new)


def read_directories(rng: random.Random, old: str, new: str) -> None:
    """Compare directories with hostile names."""
    for side, text in (("old", old), ("new", new)):
        for _ in range(3):
            name = "".join(rng.choice(WORDS)[:20] for _ in range(rng.choice((1, 2))))
            raw = name.replace("/", "-").replace("\0", "").encode("utf-8", "surrogatepass")
            directory = os.path.join(side.encode(), raw[:100] + b"d")
            os.makedirs(directory, exist_ok=True)
            chosen = text if rng.random() < 0.5 else old
            with open(os.path.join(directory, raw[:100] + b".tgraph"), "wb") as file:
                file.write(chosen.encode("utf-8", "surrogatepass"))
    for form in ("text", "markdown", "json"):
        command("diff", "old", "new", f"--format={form}")
    print(printable(str(diff("old", "new"))))


def read_update(rng: random.Random, old: str, new: str) -> None:
    """Review an update, and accept it."""
    Path("pytest.ini").touch()
    Path("test_a.py").touch()
    stored = Path("__snapshots__/test_a/test_a.tgraph")
    stored.parent.mkdir(parents=True)
    with suppress(ValueError, KeyError, TypeError):
        stored.write_text(json.loads(old)["stored"], "utf-8")
    Path("art").mkdir()
    Path("art/a.update.json").write_text(new, "utf-8", "backslashreplace")
    Path("art/b.update.json").write_text(old, "utf-8", "backslashreplace")
    for words in (("--list",), ("--format=markdown",), ("--format=json",), ("--accept",)):
        command("review", "art", *words)


def read_page(rng: random.Random, old: str, new: str) -> None:
    """Merge a page with another one."""
    whole = as_page(new)
    if rng.random() < 0.3:
        whole = mutated(rng, whole, [old])
    Path("a.html").write_text(as_page(old), "utf-8")
    Path("b.html").write_text(whole, "utf-8", "backslashreplace")
    command("merge", "a.html", "b.html", "-o", "o.html")


def read_a_baseline(rng: random.Random, old: str, new: str) -> None:
    """Read a baseline, and merge it with another one."""
    Path("a.json").write_text(old, "utf-8", "backslashreplace")
    Path("b.json").write_text(new, "utf-8", "backslashreplace")
    command("merge", "a.json", "b.json", "-o", "o.json")


def save_run(directory: Path, text: str, rng: random.Random) -> None:
    """Write the directory of `run_of`, mostly with the right key of the graphs."""
    data = json.loads(text)
    texts = str(data.get("text")), json.dumps(data.get("sources"))
    (directory / "facts").mkdir(parents=True)
    writer = RunWriter(directory, RunInfo("a", "2.13.0"))
    with suppress(UnicodeEncodeError):
        record = dict(data.get("line")).get("record")
        if isinstance(record, dict) and rng.random() < 0.9:
            record["graphs"] = writer.write_texts(*texts)
    (directory / "run.json").write_text(json.dumps(data.get("info")))
    (directory / "facts" / "main.jsonl").write_text(f"{json.dumps(data.get('line'))}\n")


def read_a_run(rng: random.Random, old: str, new: str) -> None:
    """Compare a saved run with another one, and merge both."""
    with suppress(
        ValueError, AttributeError, TypeError
    ):  # the mutation is not JSON, or not an object
        save_run(Path("old"), old, rng)
        save_run(Path("new"), new, rng)
    for form in ("--format=text", "--format=markdown", "--format=json"):
        command("diff", "old", "new", form)
        command("diff", "new", "old", form)
    command("merge", "old", "new", "-o", "out")


Mutate = Callable[[random.Random, str, list[str]], str]
Read = Callable[[random.Random, str, str], None]
READERS: dict[str, tuple[Read, Mutate, Callable[[str], str]]] = {
    "graph": (read_graph, mutated, str),
    "inline": (read_inline, mutated, str),
    "directories": (read_directories, mutated, str),
    "update": (read_update, mutated_json, update_of),
    "page": (read_page, mutated_json, page_of),
    "run": (read_a_run, mutated_json, run_of),
    "baseline": (read_a_baseline, mutated_json, lambda text: BASELINE),
}


# -- children --------------------------------------------------------------------------------------

BLOCK = 25
"""Mutations that one child reads: a fork copies the tables of all memory."""


def read_block(numbers: range, readers: list[str], seeds: list[str], home: Path) -> list[str]:
    """Read mutations in children, each until one falls; return the falls."""
    found, left = [], numbers
    while left:
        report = home / "report"
        report.write_text("")
        pid = os.fork()
        if not pid:
            os._exit(child(left, readers, seeds, home, report))
        status = os.waitpid(pid, 0)[1]
        number, _, problem = report.read_text("utf-8", "backslashreplace").partition(" ")
        if os.WIFSIGNALED(status):
            problem += f"signal {os.WTERMSIG(status)}: too much time or memory"
        elif status:
            problem += f"exit status {status}"
        if problem:
            found.append(f"{number} {readers[int(number) % len(readers)]}: {problem}")
        left = range(int(number) + 1, numbers.stop)
    return found


def child(numbers: range, readers: list[str], seeds: list[str], home: Path, report: Path) -> int:
    """Read mutations with limits. Leave the last number in a file, and its problem."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + MEBIBYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in numbers:
        report.write_text(f"{number} ")
        seconds = int(time.process_time()) + SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        if problem := problem_of(number, readers, seeds, home):
            report.write_text(f"{number} {problem}", "utf-8", "backslashreplace")
            break
    return 0


def problem_of(number: int, readers: list[str], seeds: list[str], home: Path) -> str:
    """Read one mutation; return the problem, "" if there is none."""
    rng = random.Random(number)
    read, mutate, seed_of = READERS[readers[number % len(readers)]]
    old = seed_of(rng.choice(seeds))
    new = mutate(rng, old, seeds)
    outside = home / "outside"
    shutil.rmtree(outside, ignore_errors=True)
    (outside / "root").mkdir(parents=True)
    (outside / "a.tgraph").write_text("kept")
    os.chdir(outside / "root")
    output, problem = io.StringIO(), ""
    try:
        with redirect_stdout(output), redirect_stderr(output):
            read(rng, old, new)
    except BaseException:
        problem = traceback.format_exc()
    problem += "".join(sorted(wrong_lines(output.getvalue())))
    if {path.name for path in outside.iterdir()} != {"root", "a.tgraph"}:
        problem += "a file was written outside the root"
    if (outside / "a.tgraph").read_text() != "kept":
        problem += "a file outside the root was changed"
    return problem


def wrong_lines(text: str) -> set[str]:
    """Return the lines of an output that contain a command."""
    return {
        f"output: {line[:200]!r}\n"
        for line in text.split("\n")
        if not line.isprintable() or re.match(r" *::", line) or re.search(r"##\w*\[", line)
    }


def run(first: int, count: int, readers: list[str]) -> Iterator[str]:
    """Read these mutations; yield the falls."""
    seeds = texts()
    with tempfile.TemporaryDirectory() as home:
        for n in range(first, first + count, BLOCK):
            yield from read_block(
                range(n, min(n + BLOCK, first + count)), readers, seeds, Path(home)
            )


if __name__ == "__main__":
    import torch.utils.flop_counter  # noqa: F401  # once, for all children

    numbers, chosen, falls = map(int, sys.argv[1:3]), sys.argv[3:], 0
    for fall in run(*numbers, chosen or [*READERS]):
        falls += 1
        print(fall, flush=True)
    print(f"{falls} falls")
    sys.exit(bool(falls))
