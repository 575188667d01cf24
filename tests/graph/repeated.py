"""Random texts with modules that almost repeat, as input for `fold`."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from graph.build import written

OPS = ("aten.sin.default", "aten.mm.default", "aten.add.Tensor", '"odd op"', "aten.sum.default")
CONSTANTS = ("1", "-0.5", '"%h.0.x and $1 [n] .."', "`%h.1/y $2`", "None", 'device("cpu")')
RESULTS = ("f32[2, 3]", "f32[s0, 4]", "(f32[2], i64[])", "f32[`2*s0`]")
PATHS = ("", "h.", "encoder.layer.", "a-b<c>.", "stages.0.blocks.", "stages.1.blocks.")
LEAVES = (".x", ".attn.q", "", ".0", ".mlp.3", ".experts.1.w")
OUTSIDE = ("%x", "%y", '%"odd name"', '%"forward:h.0/add"')


@dataclass
class _Writer:
    """Writes the lines of one graph, each name once."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def name(self, stem: str) -> str:
        """Return an unused name: `stem`, `stem.1`, ..."""
        name, number = stem, 0
        while name in self.used:
            number += 1
            name = f"{stem}.{number}"
        self.used.add(name)
        return name

    def node(self, stem: str, op: str, arguments: list[str], end: str) -> str:
        """Write a node, and return its name with its sign."""
        name = f"%{self.name(stem)}"
        self.lines.append(f"{name} = {op}({', '.join(arguments)}){end}")
        self.names.append(name)
        return name


def _class(r: random.Random, depth: int) -> list[tuple[str, ...]]:
    """Draw the lines of a module: part, op, operand, constant, and end."""
    lines: list[tuple[str, ...]] = []
    for _ in range(r.randint(2, 9)):
        reads = r.choice(("before", "own", "outside", "first"))
        end = r.choice((f" : {r.choice(RESULTS)}", " !random", " !mutates %x", ""))
        leaf = r.choice(LEAVES) + ("/" + r.choice("pqr"))
        lines.append((leaf, r.choice(OPS), reads, r.choice(CONSTANTS), end))
        if depth and r.random() < 0.2:
            lines.append((r.choice((".experts.", ".sub.mods.")), "", str(r.randint(1, 5)), "", ""))
    return lines


def _edited(r: random.Random, lines: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Change, drop or add a few lines."""
    lines = list(lines)
    for _ in range(r.randint(1, 3)):
        at = r.randrange(len(lines))
        kind = r.choice(("drop", "add", "change", "swap"))
        if kind == "drop" and len(lines) > 1:
            del lines[at]
        elif kind == "add":
            lines.insert(at, (".new/n", r.choice(OPS), "own", "7", ""))
        elif kind == "change" and lines[at][1]:
            lines[at] = (*lines[at][:3], "99", lines[at][4])
        elif kind == "swap":
            lines[at], lines[at - 1] = lines[at - 1], lines[at]
    return lines


def _write(
    w: _Writer, path: str, lines: list[tuple[str, ...]], entering: str, inner: dict[str, list]
) -> str:
    """Write one instance, and return the name of its last node."""
    r, own = w.random, [entering]
    for leaf, op, reads, constant, end in lines:
        if not op:
            for number in range(int(reads)):
                own.append(_write(w, f"{path}{leaf}{number}", inner[leaf], own[-1], inner))
            continue
        read = {
            "before": own[-1],
            "own": own[len(own) // 2],
            "outside": OUTSIDE[len(leaf) % len(OUTSIDE)],
            "first": entering,
        }[reads]
        arguments = [read, constant] if constant != "None" else [read, own[-1]]
        own.append(w.node(f"{path}{leaf}" if path else leaf[1:], op, arguments, end))
    if r.random() < 0.02:
        own.append(w.node("lone", "aten.neg.default", [own[-1]], ""))
    return own[-1]


def repeated_text(seed: int) -> str:
    """Return a `.tgraph` text of one graph with random repeated modules, determined by the seed."""
    r = random.Random(seed)
    w = _Writer(r)
    w.lines += ["%x = input : f32[2, 3]", "%y = input", '%"odd name" = input']
    w.lines.append('%"forward:h.0/add" = saved')
    if r.random() < 0.3:
        w.lines += [f'%"eager_0:h.{n}/add" = saved' for n in range(r.randint(1, 5))]
    w.used.update(("x", "y", "odd name", "forward:h.0/add"))
    current = "%x"
    for _ in range(r.randint(1, 3)):
        container = r.choice(PATHS)
        count = r.choice((1, 2, 3, 4, 4, 6, 13))
        inner = {leaf: _class(r, 0) for leaf in (".experts.", ".sub.mods.")}
        cls = _class(r, 1)
        rare = _edited(r, cls)
        numbers = list(range(count)) if r.random() < 0.6 else list(range(count - 1, -1, -1))
        joins = r.random() < 0.4
        for number in numbers:
            lines = cls if r.random() < 0.8 else rare if r.random() < 0.7 else _edited(r, cls)
            made = _write(w, f"{container}{number}", lines, current, inner)
            current = w.node("add", "aten.add.Tensor", [made, current], "") if joins else made
            if r.random() < 0.05:
                current = w.node("mid.way/z", r.choice(OPS), [current], "")
    share = r.random()
    kept = [name for name in w.names if hash_of(name) < share]
    if r.random() < 0.3:
        values = [*kept, "None", "3", "[%x, None]"]
        w.lines += ["return [", *(f"  {value}," for value in values), "]"]
    else:
        w.lines.append(f"return {current}")
    w.lines += [f"save {name}" for name in kept]
    return written("\n".join(w.lines))


def hash_of(name: str) -> float:
    """Return a number from 0 to 1 that depends on the last part of a name."""
    return random.Random(name.rpartition("/")[2]).random()
