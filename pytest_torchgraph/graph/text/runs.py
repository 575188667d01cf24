"""Consecutive lines of one instance of a module, for `fold`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from .folded_names import NUMBER, PATH, TOKEN, is_name, replace_names

OWN = "\x00"
"""Stands in a skeleton for the sign before a name of the instance."""
OTHER = "\x01"
"""Stands in a skeleton for any other name."""
MIN_INSTANCES = 3
"""The fewest instances that are folded, and that show that lines without one belong to it."""
MAX_ADOPTED = 8
"""The most lines without an instance that are taken for a part of the one before them."""

_INSTANCE = re.compile(rf"((?:[^./]+\.|\.)*?)({NUMBER})(?=[./])")
_OTHERS = re.compile(rf"[%@](?:{PATH}|/)+|\$+[0-9]+")
_PLAIN = re.compile(rf"%(?:{PATH}|/)+")
"""The names of a text without other signs: found faster, as all begin with one character."""


class Line(NamedTuple):
    """A line of a graph.

    Attributes:
        text: the whole line.
        name: the name that says to which instance it belongs, without its sign: of the result, or
            of the value that is saved or returned; "" where that is no single name.
    """

    text: str
    name: str


class Run:
    """Consecutive lines of one instance.

    Attributes:
        container: its path up to its number: `encoder.layer.`.
        number: its number.
        lines: the lines.
    """

    def __init__(self, container: str, number: int, lines: list[Line]):
        self.container = container
        self.number = number
        self.lines = lines

    @property
    def instance(self) -> str:
        """The path of the instance: `encoder.layer.7`."""
        return f"{self.container}{self.number}"

    @property
    def indent(self) -> str:
        """The spaces that its lines begin with."""
        text = self.lines[0].text
        return text[: len(text) - len(text.lstrip(" "))]

    @cached_property
    def parts(self) -> tuple[str, list[str]]:
        """The skeleton, with `OWN` and `OTHER` in the place of names, and the other names."""
        others: list[str] = []

        def other(match: re.Match[str]) -> str:
            others.append(match.group())
            return OTHER

        text = "\n".join([line.text for line in self.lines])
        if '"' not in text and "`" not in text:
            names = _OTHERS if "$" in text or "@" in text else _PLAIN
            return names.sub(other, self._with_own(text)), others

        def name(match: re.Match[str]) -> str:
            token = match.group()
            if not is_name(token):
                return token
            own = self._with_own(token)
            return own if own[0] == OWN else other(match)

        return "\n".join([TOKEN.sub(name, line.text) for line in self.lines]), others

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

    @property
    def foldable(self) -> bool:
        """Whether its names can be told apart when they are written relative to it."""
        return f"{OWN}.." not in self.parts[0] and f"{OWN}./" not in self.parts[0]


def runs_of(lines: Iterable[Line], prefix: str) -> list[Run | Line]:
    """The lines as runs, in their order, with the lines between that belong to no instance.

    Args:
        prefix: the path of the instance that all lines are of; "" for none.
    """
    runs: list[Run | Line] = []
    run: list[Line] = []
    own: tuple[str, ...] = ()
    for line in lines:
        if own and line.name.startswith(own):
            run.append(line)
            continue
        match = _INSTANCE.match(line.name, len(prefix)) if line.name.startswith(prefix) else None
        if match is None:
            runs.append(line)
            own = ()
            continue
        run = [line]
        instance = line.name[: match.end()]
        own = (f"{instance}.", f"{instance}/")
        runs.append(Run(line.name[: match.end(1)], int(match[2]), run))
    if sum(isinstance(run, Run) for run in runs) < MIN_INSTANCES:
        return runs
    return _with_ends(_joined(runs))


# -- lines without an instance ---------------------------------------------------------------------


def _shape(line: Line) -> str:
    """A line without the names in it."""
    return replace_names(line.text, lambda _name: OTHER)


def _joined(runs: list[Run | Line]) -> list[Run | Line]:
    """The runs with those joined that are of one instance and have the same lines between them.

    The sum of two gradients, which no module made, stands among the lines of each instance.
    """
    gaps: dict[int, tuple[str, ...]] = {}
    instances: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
    before: Run | None = None
    between: list[Line] = []
    for number, run in enumerate(runs):
        if isinstance(run, Line):
            between.append(run)
            continue
        near = len(between) <= MAX_ADOPTED and before is not None
        if near and before and (before.container, before.number) == (run.container, run.number):
            shape = (run.container, *map(_shape, between))
            gaps[number] = shape
            instances[shape].add(run.number)
        before = run
        between = []
    joined: list[Run | Line] = []
    for number, run in enumerate(runs):
        shape = gaps.get(number, ())
        if not shape or len(instances[shape]) < MIN_INSTANCES or isinstance(run, Line):
            joined.append(run)
            continue
        start = len(joined) - (len(shape) - 1)
        target = joined[start - 1]
        assert isinstance(target, Run)
        target.lines.extend(line for line in joined[start:] if isinstance(line, Line))
        target.lines.extend(run.lines)
        del joined[start:]
    return joined


def _with_ends(runs: list[Run | Line]) -> list[Run | Line]:
    """The runs with the lines behind them that only go on with what the instance made.

    They are taken where most instances of a container have the same ones.
    """
    ends: dict[int, list[str]] = {}
    usual: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for number, run in enumerate(runs):
        if isinstance(run, Run):
            ends[number] = _end(run, runs[number + 1 : number + 1 + MAX_ADOPTED])
            usual[run.container][tuple(ends[number])] += 1
    wanted = {container: counts.most_common(1)[0] for container, counts in usual.items()}
    out: list[Run | Line] = []
    skip = 0
    for number, run in enumerate(runs):
        if skip:
            skip -= 1
        elif isinstance(run, Run):
            shape, count = wanted[run.container]
            if count >= MIN_INSTANCES and tuple(ends[number][: len(shape)]) == shape:
                skip = len(shape)
                behind = runs[number + 1 : number + 1 + skip]
                run.lines.extend(line for line in behind if isinstance(line, Line))
            out.append(run)
        else:
            out.append(run)
    return out


def _end(run: Run, behind: Sequence[Run | Line]) -> list[str]:
    """The shapes of the lines behind a run that go on with what it made, or with each other."""
    shapes: list[str] = []
    made: set[str] = set()
    for line in behind:
        if isinstance(line, Run) or not line.name:
            break
        names = [name for name in TOKEN.findall(line.text) if is_name(name)]
        own = (f"%{run.instance}.", f"%{run.instance}/")
        if not any(name.startswith(own) or name in made for name in names[1:]):
            break
        made.add(names[0])
        shapes.append(_shape(line))
    return shapes
