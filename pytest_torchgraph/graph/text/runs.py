"""Consecutive lines of one instance of a module, for `fold`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cached_property

from .folded_names import NAME, NUMBER, TOKEN, is_name, replace_names

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
