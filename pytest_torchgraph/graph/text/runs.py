"""Runs: consecutive lines of one instance of a module, with adopted lines of no instance."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cached_property

from .names import GIVEN, NAME, NUMBER, TOKEN, is_name

OWN = "\x00"
"""Skeleton placeholder for the sign of a name of the instance."""
OTHER = "\x01"
"""Skeleton placeholder for any other name."""
MAX_ADOPTED = 8
"""Maximum number of lines that belong to no instance and join the run before them."""

INSTANCE = re.compile(
    rf"((?:[^./]+\.|\.)*?(?:[A-Za-z_](?:[A-Za-z0-9_]*[A-Za-z_])?)?)({NUMBER})(?=[./])"
)
"""The path of an instance at the start of a name: its container and its number."""
_OTHERS = re.compile(rf"([%@]{NAME}|{GIVEN})")
"""Names in a text without strings and symbols."""
_PLAIN = re.compile(rf"(%{NAME})")
"""Names in a text that also has no `@` and `$`. This search is faster: all names begin with `%`."""


class Lines:
    """Lines of a graph.

    Attributes:
        texts: the whole lines.
        names: for each line, the name that assigns the line to an instance, without its sign: the
            name of the result, or of the saved or returned value. "" if the line has no single
            unquoted name.
    """

    def __init__(self, texts: list[str], names: list[str]):
        self.texts = texts
        self.names = names

    def __len__(self) -> int:
        return len(self.texts)

    def extend(self, other: Lines) -> None:
        """Append other lines."""
        self.texts += other.texts
        self.names += other.names

    def part(self, start: int, stop: int | None = None) -> Lines:
        """Return a slice of the lines."""
        return Lines(self.texts[start:stop], self.names[start:stop])


class LineRun(Lines):
    """Consecutive lines of one instance, with the adopted lines between and after them.

    Attributes:
        container: path of the instance up to its number: `encoder.layer.`,
            `encoder.encoder_layer_`, `denseblock1.denselayer`.
        number: number of the instance.
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
        """The spaces at the start of each line."""
        text = self.texts[0]
        return text[: len(text) - len(text.lstrip(" "))]

    @cached_property
    def skeleton_and_names(self) -> tuple[str, list[str]]:
        """The skeleton, and the names outside the instance in order.

        The skeleton has `OWN` in place of the instance's path, and `OTHER` in place of each name
        outside the instance.
        """
        text = "\n".join(self.texts)
        if '"' not in text and "`" not in text:
            pattern = _OTHERS if "$" in text or "@" in text else _PLAIN
            # Texts and names alternate. Names of the instance begin with `OWN`, which no name has.
            pieces = pattern.split(self._with_own(text))
            return OTHER.join(pieces[::2]), pieces[1::2]
        names: list[str] = []

        def placeholder(match: re.Match[str]) -> str:
            """Return the placeholder of a name, which is added to `names` if it is another's."""
            token = match.group()
            relative = token if token[0] in '"`' else self._with_own(token)
            if relative[0] in ('"', "`", OWN):
                return relative
            names.append(token)
            return OTHER

        skeleton: list[str] = []
        for line in self.texts:
            # The call of a Python function for each name takes most of the time of `fold`.
            if '"' in line or "`" in line:
                skeleton.append(TOKEN.sub(placeholder, line))
            else:
                pieces = _OTHERS.split(self._with_own(line))
                skeleton.append(OTHER.join(pieces[::2]))
                names += pieces[1::2]
        return "\n".join(skeleton), names

    def _with_own(self, text: str) -> str:
        """Return a text with `OWN` in place of the instance's path in all names."""
        return text.replace(f"%{self.instance}.", f"{OWN}.").replace(
            f"%{self.instance}/", f"{OWN}/"
        )

    @cached_property
    def skeleton(self) -> list[str]:
        """Lines of the skeleton."""
        return self.skeleton_and_names[0].split("\n")

    @cached_property
    def others(self) -> list[list[str]]:
        """For each line, the names outside the instance."""
        names = iter(self.skeleton_and_names[1])
        return [[next(names) for _ in range(line.count(OTHER))] for line in self.skeleton]

    @cached_property
    def line_counts(self) -> Counter[str]:
        """Lines of the skeleton, with the number of their occurrences."""
        return Counter(self.skeleton)

    def count_common(self, other: LineRun) -> int:
        """Return the number of lines that the skeletons of two runs have in common."""
        a, b = sorted((self.line_counts, other.line_counts), key=len)
        return sum(min(count, b[line]) for line, count in a.items() if line in b)

    @cached_property
    def foldable(self) -> bool:
        """True if the names stay distinct when written relative to the instance.

        A name such as `%layers.1..x` would become `%..x`, a name of the enclosing instance.
        """
        return (
            f"{OWN}.." not in self.skeleton_and_names[0]
            and f"{OWN}./" not in self.skeleton_and_names[0]
        )


def split_runs(lines: Lines, prefix: str) -> list[LineRun | Lines]:
    """Split lines into runs and the lines between them, which belong to no instance.

    Args:
        prefix: path of the instance that contains all lines; "" for the top level.
    """
    runs: list[LineRun | Lines] = []
    names = lines.names
    start = index = 0
    while index < len(names):
        name = names[index]
        match = INSTANCE.match(name, len(prefix)) if name.startswith(prefix) else None
        if match is None:
            index += 1
            continue
        if start < index:
            runs.append(lines.part(start, index))
        instance = name[: match.end()]
        prefixes = (f"{instance}.", f"{instance}/")
        start = index
        while index < len(names) and names[index].startswith(prefixes):
            index += 1
        runs.append(LineRun(name[: match.end(1)], int(match[2]), lines.part(start, index)))
        start = index
    if start < index:
        runs.append(lines.part(start))
    return _adopt_following(_join_runs(runs))


# -- lines without an instance ---------------------------------------------------------------------


def _shape_of(text: str) -> str:
    """Return a line without its names."""
    return TOKEN.sub(lambda m: OTHER if is_name(m.group()) else m.group(), text)


def _join_runs(runs: list[LineRun | Lines]) -> list[LineRun | Lines]:
    """Join two runs of one instance with the lines between them. The first is extended in place.

    For example, the sum of two gradients belongs to no module, but each instance has one among its
    lines.
    """
    joined: list[LineRun | Lines] = []
    for run in runs:
        if isinstance(run, LineRun) and len(joined) > 1:
            before, between = joined[-2:]
            if (
                isinstance(before, LineRun)
                and before.instance == run.instance
                and not isinstance(between, LineRun)
                and len(between) <= MAX_ADOPTED
            ):
                before.extend(joined.pop())
                before.extend(run)
                continue
        joined.append(run)
    return joined


def _adopt_following(runs: list[LineRun | Lines]) -> list[LineRun | Lines]:
    """Extend runs in place by the lines after them that use the results of the instance.

    A run adopts as many of these lines as it has in common with most runs of its container. The
    last instance also has the lines after the container.
    """
    # For each container, how many runs begin with some sequence of such lines.
    counts: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    shapes: dict[int, list[str]] = {}
    for index, run in enumerate(runs):
        if isinstance(run, LineRun):
            following = runs[index + 1] if index + 1 < len(runs) else Lines([], [])
            shapes[index] = (
                [] if isinstance(following, LineRun) else _following_shapes(run, following)
            )
            counts[run.container].update(
                tuple(shapes[index][:length]) for length in range(len(shapes[index]) + 1)
            )
    out: list[LineRun | Lines] = []
    adopted = 0
    for index, run in enumerate(runs):
        if isinstance(run, LineRun):
            usual = counts[run.container]
            # All runs begin with the empty sequence, so `usual[()]` is their number. More than half
            # of them, and at least two, must have the adopted lines.
            adopted = max(
                length
                for length in range(len(shapes[index]) + 1)
                if length == 0 or 2 * usual[tuple(shapes[index][:length])] > max(2, usual[()])
            )
            out.append(run)
            continue
        if adopted:
            out[-1].extend(run.part(0, adopted))
        if adopted < len(run):
            out.append(run.part(adopted))
        adopted = 0
    return out


def _following_shapes(run: LineRun, following: Lines) -> list[str]:
    """Return the shapes of the lines directly after a run that use its results.

    A line may also use the result of an earlier one of these lines.
    """
    shapes: list[str] = []
    results: set[str] = set()
    for text, name in zip(following.texts[:MAX_ADOPTED], following.names, strict=False):
        if not name:  # a quoted name
            break
        names = [token for token in TOKEN.findall(text) if is_name(token)]
        prefixes = (f"%{run.instance}.", f"%{run.instance}/")
        if not any(used.startswith(prefixes) or used in results for used in names[1:]):
            break
        results.add(names[0])
        shapes.append(_shape_of(text))
    return shapes
