"""Consecutive lines of one instance of a module, and the block that several instances share, for
`fold`.

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
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

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


OWN = "\x00"
"""Stands in a skeleton for the sign before a name of the instance."""
OTHER = "\x01"
"""Stands in a skeleton for any other name."""
MIN_INSTANCES = 3
"""The fewest instances that are folded, and that show that lines without one belong to it."""
MAX_ADOPTED = 8
"""The most lines without an instance that are taken for a part of the one before them."""

_INSTANCE = re.compile(rf"((?:[^./]+\.|\.)*?(?:[A-Za-z_][A-Za-z0-9_]*_)?)({NUMBER})(?=[./])")
_OTHERS = re.compile(rf"[%@]{NAME}|\$+[0-9]+")
_PLAIN = re.compile(rf"%{NAME}")
"""The names of a text without other signs: found faster, as all begin with one character."""


class Lines:
    """Lines of a graph.

    Attributes:
        texts: the whole lines.
        names: for each the name that says to which instance it belongs, without its sign: of the
            result, or of the value that is saved or returned; "" where that is no single plain one.
    """

    def __init__(self, texts: list[str], names: list[str]):
        self.texts = texts
        self.names = names

    def __len__(self) -> int:
        return len(self.texts)

    def extend(self, other: Lines) -> None:
        """Add lines behind these."""
        self.texts += other.texts
        self.names += other.names

    def part(self, start: int, stop: int | None = None) -> Lines:
        """Some of the lines, by their indices."""
        return Lines(self.texts[start:stop], self.names[start:stop])


class LineRun(Lines):
    """Consecutive lines of one instance.

    Attributes:
        container: its path up to its number: `encoder.layer.`, or `encoder.encoder_layer_`.
        number: its number.
    """

    def __init__(self, container: str, number: int, lines: Lines):
        super().__init__(lines.texts, lines.names)
        self.container = container
        self.number = number

    @property
    def instance(self) -> str:
        """The path of the instance: `encoder.layer.7`."""
        return f"{self.container}{self.number}"

    @property
    def indent(self) -> str:
        """The spaces that its lines begin with."""
        text = self.texts[0]
        return text[: len(text) - len(text.lstrip(" "))]

    @cached_property
    def parts(self) -> tuple[str, list[str]]:
        """The skeleton, with `OWN` and `OTHER` in the place of names, and the other names."""
        others: list[str] = []

        def other(match: re.Match[str]) -> str:
            others.append(match.group())
            return OTHER

        text = "\n".join(self.texts)
        if '"' not in text and "`" not in text:
            names = _OTHERS if "$" in text or "@" in text else _PLAIN
            text = self._with_own(text)
            return names.sub(OTHER, text), names.findall(text)

        def name(match: re.Match[str]) -> str:
            token = match.group()
            if not is_name(token):
                return token
            own = self._with_own(token)
            return own if own[0] == OWN else other(match)

        return "\n".join([TOKEN.sub(name, line) for line in self.texts]), others

    def _with_own(self, text: str) -> str:
        return text.replace(f"%{self.instance}.", f"{OWN}.").replace(
            f"%{self.instance}/", f"{OWN}/"
        )

    @cached_property
    def skeleton(self) -> list[str]:
        """The skeleton's lines."""
        return self.parts[0].split("\n")

    @cached_property
    def others(self) -> list[list[str]]:
        """For each line the names in it that are not of the instance."""
        names = iter(self.parts[1])
        return [[next(names) for _ in range(line.count(OTHER))] for line in self.skeleton]

    @cached_property
    def foldable(self) -> bool:
        """Whether its names can be told apart when they are written relative to it."""
        return f"{OWN}.." not in self.parts[0] and f"{OWN}./" not in self.parts[0]


def runs_of(lines: Lines, prefix: str) -> list[LineRun | Lines]:
    """The lines as runs, in their order, with the lines between that belong to no instance.

    Args:
        prefix: the path of the instance that all lines are of; "" for none.
    """
    runs: list[LineRun | Lines] = []
    names = lines.names
    start = at = 0
    while at < len(names):
        name = names[at]
        match = _INSTANCE.match(name, len(prefix)) if name.startswith(prefix) else None
        if match is None:
            at += 1
            continue
        if start < at:
            runs.append(lines.part(start, at))
        instance = name[: match.end()]
        own = (f"{instance}.", f"{instance}/")
        start = at
        while at < len(names) and names[at].startswith(own):
            at += 1
        runs.append(LineRun(name[: match.end(1)], int(match[2]), lines.part(start, at)))
        start = at
    if start < at:
        runs.append(lines.part(start))
    if sum(isinstance(run, LineRun) for run in runs) < MIN_INSTANCES:
        return runs
    return _with_ends(_joined(runs))


# -- lines without an instance ---------------------------------------------------------------------


def _shape(text: str) -> str:
    """A line without the names in it."""
    return replace_names(text, lambda _name: OTHER)


def _joined(runs: list[LineRun | Lines]) -> list[LineRun | Lines]:
    """The runs with those joined that are of one instance and have the same lines between them.

    The sum of two gradients, which no module made, stands among the lines of each instance.
    """
    gaps: dict[int, tuple[str, ...]] = {}
    instances: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
    for number in range(2, len(runs)):
        before, between, run = runs[number - 2 : number + 1]
        if (
            not isinstance(before, LineRun)
            or isinstance(between, LineRun)
            or not isinstance(run, LineRun)
        ):
            continue
        if len(between) > MAX_ADOPTED:
            continue
        if (before.container, before.number) == (run.container, run.number):
            shape = gaps[number] = (run.container, *map(_shape, between.texts))
            instances[shape].add(run.number)
    joined: list[LineRun | Lines] = []
    for number, run in enumerate(runs):
        if len(instances[gaps[number]] if number in gaps else ()) < MIN_INSTANCES:
            joined.append(run)
            continue
        between = joined.pop()
        joined[-1].extend(between)
        joined[-1].extend(run)
    return joined


def _with_ends(runs: list[LineRun | Lines]) -> list[LineRun | Lines]:
    """The runs with the lines behind them that only go on with what the instance made.

    They are taken where most instances of a container have the same ones.
    """
    ends: dict[int, list[str]] = {}
    usual: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for number, run in enumerate(runs):
        if isinstance(run, LineRun):
            behind = runs[number + 1] if number + 1 < len(runs) else run
            ends[number] = [] if isinstance(behind, LineRun) else _end(run, behind)
            usual[run.container][tuple(ends[number])] += 1
    wanted = {container: counts.most_common(1)[0] for container, counts in usual.items()}
    out: list[LineRun | Lines] = []
    taken = 0
    for number, run in enumerate(runs):
        if isinstance(run, LineRun):
            shape, count = wanted[run.container]
            out.append(run)
            if count >= MIN_INSTANCES and tuple(ends[number][: len(shape)]) == shape:
                taken = len(shape)
            continue
        if taken:
            out[-1].extend(run.part(0, taken))
        if taken < len(run):
            out.append(run.part(taken))
        taken = 0
    return out


def _end(run: LineRun, behind: Lines) -> list[str]:
    """The shapes of the lines behind a run that go on with what it made, or with each other."""
    shapes: list[str] = []
    made: set[str] = set()
    for text, name in zip(behind.texts[:MAX_ADOPTED], behind.names, strict=False):
        if not name:
            break
        names = [token for token in TOKEN.findall(text) if is_name(token)]
        own = (f"%{run.instance}.", f"%{run.instance}/")
        if not any(used.startswith(own) or used in made for used in names[1:]):
            break
        made.add(names[0])
        shapes.append(_shape(text))
    return shapes


@dataclass(frozen=True)
class Block:
    """Lines that stand for those of any instance; see `folded_names` for the names in them.

    Attributes:
        lines: the lines, without any `each` inside of them.
        rows: for each line the index of the line of the file that it comes from.
        depth: how many blocks it is inside of, itself included.
    """

    lines: list[str]
    rows: list[int]
    depth: int

    @cached_property
    def _pieces(self) -> tuple[list[list[str]], list[int]]:
        """The text between the formals, cut where an instance's path belongs; the formals."""
        pieces: list[list[str]] = []
        formals: list[int] = []
        segments: list[str] = []
        text: list[str] = []

        def cut() -> None:
            segments.append("".join(text))
            text.clear()

        for number, line in enumerate(self.lines):
            if number:
                text.append("\n")
            end = 0
            for match in TOKEN.finditer(line):
                token = match.group()
                if not is_name(token):
                    continue
                text.append(line[end : match.start()])
                end = match.end()
                formal = FORMAL.match(token)
                if formal and len(formal[1]) == self.depth:
                    cut()
                    pieces.append(segments.copy())
                    segments.clear()
                    formals.append(int(formal[2]))
                elif token.startswith(("%..", "%./")):
                    text.append(f"%{token[2:]}")
                elif token.startswith(("%.", "%/")):
                    text.append("%")
                    cut()
                    text.append(token[1:])
                else:
                    text.append(token)
            text.append(line[end:])
        cut()
        pieces.append(segments)
        return pieces, formals

    @cached_property
    def uses(self) -> Counter[int]:
        """How often each formal of this block occurs."""
        return Counter(self._pieces[1])

    @cached_property
    def _length(self) -> tuple[int, int]:
        """The characters that all instances have alike, and the number of paths."""
        pieces = self._pieces[0]
        alike = sum(len(segment) for piece in pieces for segment in piece)
        return alike, sum(len(piece) - 1 for piece in pieces)

    def length(self, instance: str, given: Mapping[int, str]) -> int:
        """The characters of `text` for the same arguments, without making it."""
        alike, paths = self._length
        names = sum(count * len(given[formal]) for formal, count in self.uses.items())
        return alike + paths * len(instance) + names

    def text(self, instance: str, given: Mapping[int, str]) -> str:
        """The lines of one instance, joined.

        Args:
            instance: its path, relative to the instance around the block if there is one.
            given: for each formal that occurs its name.
        """
        pieces, formals = self._pieces
        text = [instance.join(pieces[0])]
        for formal, piece in zip(formals, pieces[1:], strict=True):
            text += (given[formal], instance.join(piece))
        return "".join(text)
