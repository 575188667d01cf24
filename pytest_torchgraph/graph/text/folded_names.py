r"""Names in the lines of a folded text, as `fold` writes them and `expand` reads them.

The lines of a block stand for those of any of its instances, so that a name in them is one of

    %.x  %/x    a name of the instance: `%encoder.layer.7.x`, `%encoder.layer.7/x`
    %..x %./x   the same of the instance around it, in a block inside a block; one more dot, one
                more instance
    $1          a name that each instance gives by itself; `$$1` in a block inside a block
    %x          any other name, alike in all instances

A name that a range of instances gives may have numbers that follow from that of the instance, n:
`%encoder.layer.[n-1].x`, `%add.[2n+1]`, `%add.[31-2n]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

STRING = r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)'
"""A JSON string in a line; an unclosed one takes the rest, so that no search begins again in it."""
PATH = r"[A-Za-z0-9_.\-#<>]"
"""A character of a module path in a name that is not quoted."""
NAME = r"[A-Za-z0-9_.\-#<>/]+"
"""A name that is not quoted, without its sign."""
NUMBER = r"(?:0|[1-9][0-9]{0,8})"
"""The number of an instance, as Python prints it."""
CONTAINER = rf"(?:{PATH}*[._])?"
"""The path of an instance up to its number: `encoder.layer.`, `encoder.encoder_layer_`."""

TOKEN = re.compile(
    rf"{STRING}|`[^`]*(?:`|\Z)|[%@](?:{STRING}|{NAME})|\$+[0-9]+",
)
"""Names, and the strings and symbols that only look as if they had names in them."""
FORMAL = re.compile(r"(\$+)([0-9]+)\Z")
EXPRESSION = re.compile(r"\[(?:([0-9]{0,9})n(?:([+-])([0-9]{1,9}))?|([0-9]{1,9})-([0-9]{0,9})n)\]")
"""A number in a name as a function of n: `[n]`, `[n-1]`, `[2n+1]`, `[31-2n]`."""
_COMPONENT = re.compile(rf"(?<![A-Za-z0-9]){NUMBER}(?![A-Za-z0-9])")
_DEFINED = re.compile(rf"(%(?:{STRING}|{NAME})|\$+[0-9]+) = ")
STEEPEST = 9
"""The largest factor of n that `fold` writes: a larger one is a coincidence of two numbers."""


def is_name(token: str) -> bool:
    """Whether what `TOKEN` found is a name, and no string or symbol."""
    return token[0] in "%@$"


def replace_names(line: str, new: Callable[[str], str]) -> str:
    """One line with its names replaced, strings and symbols untouched."""
    return TOKEN.sub(lambda m: new(m.group()) if is_name(m.group()) else m.group(), line)


def outward(name: str) -> str:
    """A name of one of the instances around a block, as lines inside of the block write it."""
    return f"%.{name[1:]}" if name.startswith(("%.", "%/")) else name


def key_of(line: str) -> str:
    """That by which an exception refers to a line of a block: its result, else the whole line."""
    line = line.lstrip(" ")
    defined = _DEFINED.match(line)
    return defined[1] if defined else line


def numbers_in(name: str) -> tuple[str, tuple[int, ...]]:
    """A name with `[]` for each number that is a part of its own, and these numbers."""
    if name.startswith('"', 1) or name[0] == "$":
        return name, ()
    return _COMPONENT.sub("[]", name), tuple(map(int, _COMPONENT.findall(name)))


def with_expressions(pattern: str, lines: list[tuple[int, int]]) -> str:
    """A name that follows from n.

    Args:
        pattern: the name with `[]` for each number, as `numbers_in` gives it.
        lines: for each of them factor and summand.
    """
    parts = pattern.split("[]")
    texts = [_expression(factor, summand) for factor, summand in lines]
    return "".join(part + text for part, text in zip(parts, [*texts, ""], strict=True))


def _expression(factor: int, summand: int) -> str:
    if factor == 0:
        return str(summand)
    times = "" if abs(factor) == 1 else str(abs(factor))
    if factor < 0:
        return f"[{summand}-{times}n]"
    return f"[{times}n{summand:+d}]" if summand else f"[{times}n]"


def evaluate(match: re.Match[str], n: int) -> int:
    """The number that an `EXPRESSION` gives for the instance with number n; may be negative."""
    factor, sign, summand, start, falling = match.groups()
    if start is not None:
        return int(start) - int(falling or 1) * n
    number = int(factor or 1) * n
    return number + int(summand) * (1 if sign == "+" else -1) if sign else number
