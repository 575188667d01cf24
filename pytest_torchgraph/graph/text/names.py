"""Names in the lines of a block, and tokens of a line.

The lines of a block apply to any of its instances, so a name in a block has one of these forms:

    %.x  %/x    a name of the instance: `%encoder.layer.7.x`, `%encoder.layer.7/x`
    %..x %./x   a name of the enclosing instance, in a nested block; each further dot is one
                more level outward
    $1          a name or a size given by each instance; `$$1` in a nested block
    %x          any other name, equal in all instances

Earlier releases wrote several instances on one line. A name given by such a line may have numbers
that depend on the instance number n: `%encoder.layer.[n-1].x`, `%add.[2n+1]`, `%add.[31-2n]`.
"""

from __future__ import annotations

import re

STRING = r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)'
"""A JSON string in a line.

An unclosed string extends to the end of the line, so that no search restarts inside it.
"""
PATH = r"[A-Za-z0-9_.\-#<>]"
"""A character of a module path in an unquoted name."""
NAME = r"[A-Za-z0-9_.\-#<>/]+"
"""An unquoted name, without its sign."""
NUMBER = r"(?:0|[1-9][0-9]{0,8})"
"""The number of an instance, as Python prints it."""
CONTAINER = rf"(?:{PATH}*[A-Za-z._])?"
"""The path of an instance up to its number: `encoder.layer.`, `encoder.encoder_layer_`, `block`."""

GIVEN = r"(?<![\w.$\-])\$+[0-9]+(?![\w.])"
"""A value that each instance gives: no part of a number or of a name, which it would complete."""

_STAGE = re.compile(rf"((?:.*[._])?){NUMBER}(?=\.)")
"""A path up to and including its last number."""

TOKEN = re.compile(
    rf"{STRING}|`[^`]*(?:`|\Z)|[%@](?:{STRING}|{NAME})|{GIVEN}",
)
"""Names. Strings and symbols match as well, because their text can look like a name."""
WITH_INTEGERS = re.compile(rf"{TOKEN.pattern}|(?<![\w.+\-])-?[0-9]+(?![\w.])", re.ASCII)
"""The matches of `TOKEN`, and integers, such as the sizes in results and arguments."""
FORMAL = re.compile(r"(\$+)([0-9]+)\Z")
"""A value that each instance gives: its signs, one for each enclosing block, and its number."""
EXPRESSION = re.compile(r"\[(?:([0-9]{0,9})n(?:([+-])([0-9]{1,9}))?|([0-9]{1,9})-([0-9]{0,9})n)\]")
"""A number in a name as a function of n: `[n]`, `[n-1]`, `[2n+1]`, `[31-2n]`."""
_DEFINED = re.compile(rf"(%(?:{STRING}|{NAME})|\$+[0-9]+) = ")


def is_name(token: str) -> bool:
    """Return True if a match of `TOKEN` is a name, not a string or symbol."""
    return token[0] in "%@$"


def outward(name: str) -> str:
    """Return a name of an enclosing instance, as written by the lines of a block."""
    return f"%.{name[1:]}" if name.startswith(("%.", "%/")) else name


def shared_path(container: str) -> str:
    """Return the path of a block that a container can share with containers of other stages.

    `features.3.` and `features.5.` share `features.*.`. Return the container itself if no instance
    contains it.
    """
    match = _STAGE.match(container)
    return f"{match[1]}*{container[match.end() :]}" if match else container


def key_of(line: str) -> str:
    """Return the key by which an exception refers to a line.

    The key is the name of the line's result, or the whole line if the line has no result.
    """
    line = line.lstrip(" ")
    defined = _DEFINED.match(line)
    return defined[1] if defined else line


def evaluate(match: re.Match[str], n: int) -> int:
    """Return the value of an `EXPRESSION` for instance number n; it may be negative."""
    factor, sign, summand, start, falling = match.groups()
    if start is not None:
        return int(start) - int(falling or 1) * n
    number = int(factor or 1) * n
    return number + int(summand) * (1 if sign == "+" else -1) if sign else number
