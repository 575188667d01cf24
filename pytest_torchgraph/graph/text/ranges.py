"""Lines of a folded text that list an instance or a range of instances. `fold` writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...words import grouped
from .names import STEEPEST, numbers_in, with_expressions


class Instance(NamedTuple):
    """An instance of a block.

    Attributes:
        container: path of the instance up to its number.
        number: number of the instance.
        letter: letter of the block.
        sign: `$` for each enclosing block, plus one.
        arguments: for each formal, its name; `None` if the changes remove every use of the formal.
        changes: lines of the instance's exceptions, without indentation.
        indent: spaces at the start of the instance's line.
    """

    container: str
    number: int
    letter: str
    sign: str
    arguments: tuple[str | None, ...]
    changes: tuple[str, ...]
    indent: str


class Range:
    """Consecutive instances on one line. `add` extends the range.

    Attributes:
        instances: the instances added so far.
        step: 1 or -1; 0 for a single instance.
    """

    def __init__(self, first: Instance):
        self.instances = [first]
        self.step = 0
        self._names = [_Progression(first.number, name) for name in first.arguments]

    def add(self, instance: Instance) -> bool:
        """Add the next instance and return True, or return False if it does not fit the range."""
        last = self.instances[-1]
        step = instance.number - last.number
        if abs(step) != 1 or step == -self.step:
            return False
        if (instance.container, instance.letter) != (last.container, last.letter):
            return False
        pairs = list(zip(self._names, instance.arguments, strict=True))
        if not all(progression.fits(instance.number, name) for progression, name in pairs):
            return False
        for progression, name in pairs:
            progression.add(instance.number, name)
        self.instances.append(instance)
        self.step = step
        return True

    @property
    def accidental(self) -> bool:
        """True if the range has only two instances, and their names fit by coincidence."""
        return len(self.instances) == 2 and any(progression.steep for progression in self._names)

    def lines(self) -> list[str]:
        """Return the line of the range, followed by its exceptions."""
        first, last = self.instances[0], self.instances[-1]
        line = f"{first.indent}{first.container}{first.number}"
        if len(self.instances) > 1:
            line += f" .. {last.number}"
        if first.letter:
            line += f" {first.letter}"
        names = [progression.text() for progression in self._names]
        assignments = [f"{first.sign}{k} = {name}" for k, name in enumerate(names, 1) if name]
        if assignments:
            line += f": {', '.join(assignments)}"
        lines = [line]
        changes = grouped(
            (instance.changes, instance.number) for instance in self.instances if instance.changes
        )
        for changed, numbers in changes.items():
            lines.append(f"{first.indent}but {first.container}{_format_spans(numbers)} {{")
            lines += [f"{first.indent}  {change}" for change in changed]
            lines.append(f"{first.indent}}}")
        return lines


class _Progression:
    """Names that consecutive instances give for one formal. Their numbers progress evenly.

    Attributes:
        name: name given by instance `start`, the first that gives one; `None` if none does.
        pattern, values: that name with `[]` in place of its numbers, and the numbers.
        start: number of the instance that gives `name`.
        factors: growth of each number per instance; `None` if only one name was added.
    """

    def __init__(self, number: int, name: str | None):
        self.name: str | None = None
        self.pattern = ""
        self.start = 0
        self.values: tuple[int, ...] = ()
        self.factors: tuple[int, ...] | None = None
        self.add(number, name)

    def fits(self, number: int, name: str | None) -> bool:
        """Return True if the next instance's name continues the pattern."""
        if name is None or self.name is None:
            return True
        if self.factors is None and name == self.name:
            return True
        pattern, values = numbers_in(name)
        if pattern != self.pattern:
            return False
        factors = self._compute_factors(number, values)
        return factors is not None and self.factors in (None, factors)

    def add(self, number: int, name: str | None) -> None:
        """Add the name of the next instance, for which `fits` returned True."""
        if name is None:
            return
        if self.name is None:
            self.name, self.start = name, number
            self.pattern, self.values = numbers_in(name)
        elif self.factors is None:
            self.factors = self._compute_factors(number, numbers_in(name)[1])

    def _compute_factors(self, number: int, values: Sequence[int]) -> tuple[int, ...] | None:
        """Return the growth of each number per instance.

        The result is `None` if a growth is not an integer, or exceeds `STEEPEST`.
        """
        distance = number - self.start
        factors = []
        for old, new in zip(self.values, values, strict=True):
            factor, rest = divmod(new - old, distance)
            if rest or abs(factor) > STEEPEST:
                return None
            factors.append(factor)
        return tuple(factors)

    @property
    def steep(self) -> bool:
        """True if a number in the names grows by more than 1 per instance."""
        return any(abs(factor) > 1 for factor in self.factors or ())

    def text(self) -> str | None:
        """Return the name as a function of the instance number."""
        if self.name is None or not self.factors or not any(self.factors):
            return self.name
        pairs = zip(self.factors, self.values, strict=True)
        lines = [(factor, value - factor * self.start) for factor, value in pairs]
        return with_expressions(self.pattern, lines)


def merge_ranges(instances: Iterable[Instance]) -> list[Range]:
    """Merge adjacent instances into as few ranges as possible."""
    ranges: list[Range] = []
    for instance in instances:
        if ranges and ranges[-1].add(instance):
            continue
        # The range ends after two instances that fit by coincidence. Each gets its own range, and
        # the second may continue with this instance.
        if ranges and ranges[-1].accidental:
            second = Range(ranges[-1].instances[1])
            ranges[-1] = Range(ranges[-1].instances[0])
            ranges.append(second)
            if second.add(instance):
                continue
        ranges.append(Range(instance))
    return ranges


def _format_spans(numbers: Sequence[int]) -> str:
    """Format numbers as spans: `7, 9 .. 11`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and abs(number - spans[-1][-1]) == 1:
            span = spans[-1]
            if len(span) == 1 or number - span[-1] == span[1] - span[0]:
                span.append(number)
                continue
        spans.append([number])
    return ", ".join(str(s[0]) if len(s) == 1 else f"{s[0]} .. {s[-1]}" for s in spans)
