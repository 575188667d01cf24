"""Texts made to be slow or to break the reader. Each grows to any size."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from graph.build import document

Text = Callable[[int], str]
HEAD = "torchgraph 1\n\n"


BLOCK = "each m.* {\n    %/f = f()\n  }\n  "


def _folded(lines: str) -> str:
    return f"torchgraph 2\n\nforward @ aot {{\n  %x = input\n  {lines}"


def _line(body: str) -> str:
    return document(f"%x = input : f32[2]\n%y = f({body})\nreturn %y")


def _many(line: Callable[[int], str], size: int, before: str = "", after: str = "return %x") -> str:
    """Fill a graph of this size with lines of one kind."""
    lines, length, k = [before], 0, 0
    while length < size:
        lines.append(line(k))
        length += len(lines[-1]) + 3
        k += 1
    return document("\n".join(filter(None, [*lines, after])))


# -- one long line ---------------------------------------------------------------------------------

PIECES = (
    *("(", ")", "[", "]", "{", "}", ",", ", ", " ", "\t", "\n", "\r", "\r\n", '"', "\\", "`", "%"),
    *("@", "&", "!", "-", ".", "...", "0", "9", "1.", "1e", "1e9", "e", "a", "a.", "_", "é"),
    *("\x00", "\ud800", "\u2028", "[[", "{1: ", "slice(", "complex(", "bytes(", "device("),
    *("f32[", "None, ", "%x, ", "a=1, ", "[], ", "{}, ", "nan, ", "-inf, ", '"", ', "``, ", "x, "),
    *("True, ", "0x", "torchgraph 1\n", "via aot, ", "forward {\n", "forward @ aot {\n", " : "),
    *("  return\n", "  save %x\n", "!random ", " !random", " after %x", " after", " in ", "}\n"),
    *("%x = ", "\\u0041", '\\"', "torchgraph 2\n", "eager_0 × 2 {\n", " × 2"),
    *("each m.* {\n", " .. 9\n", ": $1 = %x", ", $1", "[n]", "[n-1]", "  - ", "  + ", "  ~ "),
)
"""Pieces repeated as a whole file, a header, arguments, a result, and at the end of a node."""


def _repeated(piece: str) -> dict[str, Text]:
    def times(size: int) -> str:
        return piece * (size // len(piece))

    return {
        f"{piece!r} alone": times,
        f"{piece!r} as header": lambda size: f"torchgraph 1\n{times(size)}",
        f"{piece!r} as graph": lambda size: f"{HEAD}forward @ aot {{\n  {times(size)}",
        f"{piece!r} as arguments": lambda size: _line(times(size)),
        f"{piece!r} in a string": lambda size: _line(f'"{times(size)}'),
        f"{piece!r} in a symbol": lambda size: _line(f"`{times(size)}`"),
        f"{piece!r} as result": lambda size: _line(f"%x) : f32[{times(size)}]"),
        f"{piece!r} after a node": lambda size: _line(f"%x){times(size)}"),
        f"{piece!r} as block": lambda size: _folded(f"each {times(size)}"),
        f"{piece!r} in a block": lambda size: _folded(f"each m.* {{\n    %/f = f({times(size)}"),
        f"{piece!r} as instance": lambda size: _folded(f"{BLOCK}m.0{times(size)}"),
        f"{piece!r} as exception": lambda size: _folded(f"{BLOCK}m.0\n  but m.0{times(size)}"),
    }


REPEATED = {name: text for piece in PIECES for name, text in _repeated(piece).items()}


# -- graphs that can be read -----------------------------------------------------------------------


def _listed(item: Callable[[int], str], size: int) -> str:
    items, length, k = [], 0, 0
    while length < size:
        items.append(item(k))
        length += len(items[-1]) + 2
        k += 1
    return ", ".join(items)


def numbers(size: int) -> str:
    """Write a number of the maximum number of digits, many times."""
    return _line(_listed(lambda k: "9" * 399, size))


def floats(size: int) -> str:
    """A float of a million digits."""
    return _line("1" * (size // 2) + "." + "1" * (size // 2) + ", 1e999999, -1e-999999")


def references(size: int) -> str:
    """Name one value many times in one list."""
    return _line(f"[{_listed(lambda k: '%x', size)}]")


def lists(size: int) -> str:
    """Deep lists, many times."""
    return _line(_listed(lambda k: "[" * 55 + "]" * 55, size))


def keys(size: int) -> str:
    """A dictionary with many keys."""
    return _line(f"{{{_listed(lambda k: f'{k}: 1', size)}}}")


def equal_hashes(size: int) -> str:
    """A dictionary whose keys all have the same hash."""
    return _line(f"{{{_listed(lambda k: f'{k * (2**61 - 1)}: 1', size)}}}")


def keywords(size: int) -> str:
    """A call with many keyword arguments."""
    return _line(_listed(lambda k: f"a{k}=%x", size))


def sizes(size: int) -> str:
    """Results of the most dimensions, as one tuple."""
    shapes = ", ".join([f"f32[{', '.join(f'`s{k}*2`' for k in range(64))}]"] * (size // 500))
    return _line(f"%x) : ({shapes})").replace("))\n", ")\n")


def escapes(size: int) -> str:
    """A string of escapes only."""
    return _line('"' + "\\u2028" * (size // 6) + '"')


def effects(size: int) -> str:
    """One node with many side effects."""
    return _line("%x)" + " !random !mutates %x !opaque" * (size // 28)).replace("opaque)", "opaque")


def orderings(size: int) -> str:
    """One node ordered after many others."""
    count = size // 24
    nodes = [f"%n{k} = f(%x)" for k in range(count)]
    after = ", ".join(f"%n{k}" for k in range(count))
    return document("\n".join(["%x = input", *nodes, f"%y = g() after {after}", "return %y"]))


def opaque(size: int) -> str:
    """Many resources that are written, then many nodes that may touch each of them."""
    count = size // 60
    inputs = [f"%x{k} = input" for k in range(count)]
    writes = [f"%w{k} = f() !mutates %x{k}" for k in range(count)]
    calls = [f"%o{k} = g() !opaque" for k in range(count)]
    return document("\n".join([*inputs, *writes, *calls, "return %x0"]))


def writes(size: int) -> str:
    """Many writes of one input."""
    return _many(lambda k: f"%w{k} = f_(%x) !mutates %x", size, "%x = input")


def line_of_ops(size: int) -> str:
    """A chain of equal ops."""
    return _many(lambda k: f"%n{k} = f(%{f'n{k - 1}' if k else 'x'})", size, "%x = input")


def dead_fan(size: int) -> str:
    """Many equal ops on one input that nothing uses."""
    return _many(lambda k: f"%n{k} = f(%x)", size, "%x = input")


def dead_hub(size: int) -> str:
    """Many equal ops on one value that nothing else uses."""
    return _many(lambda k: f"%n{k} = f(%hub)", size, "%x = input\n%hub = h(%x)")


def dead_rings(size: int) -> str:
    """Sums of neighbours in one large ring, in random order, that nothing uses."""
    count = max(3, size // 40)
    values = [f"%v{k} = f(%x)" for k in range(count)]
    sums = [f"%s{k} = add(%v{k}, %v{(k + 1) % count})" for k in range(count)]
    random.Random(0).shuffle(sums)
    return document("\n".join(["%x = input", *values, *sums, "return %x"]))


def random_ops(size: int) -> str:
    """Few kinds of op on random operands."""
    rng = random.Random(0)

    def line(k: int) -> str:
        left, right = (f"n{rng.randrange(k)}" if k else "x" for _ in range(2))
        return f"%n{k} = {rng.choice('abc')}(%{left}, %{right})"

    return _many(line, size, "%x = input")


def projections(size: int) -> str:
    """Many outputs of one op."""
    return _many(
        lambda k: f"%a#{k} = operator.getitem(%a, {k})", size, "%x = input\n%a = f(%x) : (f32[2])"
    )


def saves(size: int) -> str:
    """Many values saved for the backward."""
    return document("%x = input\nreturn %x\n" + "save %x\n" * (size // 10))


def inputs(size: int) -> str:
    """Many inputs."""
    return _many(lambda k: f"%x{k} = input : f32[{k}]", size, "%x = input")


def bodies(size: int) -> str:
    """Many bodies, and many nodes."""
    count = size // 70
    made = [f"b{k}: forward {{\n  return {k}\n}}" for k in range(count)]
    nodes = [f"%n{k} = f(@b{k})" for k in range(count)]
    return document("\n".join([*made, "%x = input", *nodes, "return %x"]))


def similar_bodies(size: int) -> str:
    """Many bodies that differ only in shared values."""
    count, rng = size // 180, random.Random(0)

    def body(k: int) -> list[str]:
        made = [f"b{k}: forward {{", "  %p = input"]
        made += [f"  %v{j} = f(%p)" for j in range(4)]
        made += [f"  %s{j} = g(%v{rng.randrange(4)}, %v{rng.randrange(4)})" for j in range(3)]
        return [*made, "  return [%s0, %s1, %s2]", "}"]

    made = [line for k in range(count) for line in body(k)]
    nodes = [f"%n{k} = f(@b{k})" for k in range(count)]
    return document("\n".join([*made, "%x = input", *nodes, "return %x"]))


def nested_bodies(size: int) -> str:
    """Two bodies that each contain two bodies, and so on."""

    def body(depth: int, number: int) -> list[str]:
        if not depth:
            return [f"b{number}: forward {{", "  return 1", "}"]
        inner = [f"  {line}" for k in range(2) for line in body(depth - 1, k)]
        calls = [f"  %c{k} = f(@b{k})" for k in range(2)]
        return [f"b{number}: forward {{", *inner, *calls, "  return [%c0, %c1]", "}"]

    depth = max(1, (size // 100).bit_length())
    return document("\n".join([*body(depth, 0), "%x = f(@b0)", "return %x"]))


def deep_bodies(size: int) -> str:
    """Bodies nested to the maximum depth, with many nodes at the bottom."""
    lines = [f"%n{k} = f(%x)" for k in range(size // 200)]
    inner = ["%x = input", *lines, "return %x"]
    for _ in range(55):
        inner = ["b: forward {", *(f"  {line}" for line in inner), "}", "%h = f(@b)", "return %h"]
    return document("\n".join(inner))


READABLE: dict[str, Text] = {
    function.__name__: function
    for function in (
        *(numbers, floats, references, lists, keys, equal_hashes),
        *(keywords, sizes, escapes, effects, orderings, opaque, writes),
        *(line_of_ops, dead_fan, dead_hub, dead_rings, random_ops, projections),
        *(saves, inputs, bodies, similar_bodies, nested_bodies, deep_bodies),
    )
}


def graphs(size: int) -> str:
    """A file of many graphs, half of them backward."""
    one = "f{0}: forward @ aot {{\n  %x = input\n  %y = f(%x)\n  return %y\n  save %x\n}}\n\n"
    other = "b{0}: backward @ aot {{\n  %x = saved\n  return %x\n}}\n\n"
    return HEAD + "".join(one.format(k) + other.format(k) for k in range(size // 120))


def counts(size: int) -> str:
    """Counts of many ops."""
    lines = "".join(f"  1 f{k}\n" for k in range(size // 10))
    return f"torchgraph 1\ndetail ops\n\nforward @ aot {{\n{lines}}}\n"


FILES: dict[str, Text] = {"graphs": graphs, "counts": counts}


def everything() -> Iterator[tuple[str, Text]]:
    """Yield all of them by name."""
    yield from REPEATED.items()
    yield from READABLE.items()
    yield from FILES.items()
