"""Lists of parameters: an update has the same lines for each parameter, and they are written once.

`with_lists` writes the lists: `_ListWriter` finds the parameter of each line, and the longest run
of parameters whose lines are equal after replacing the parameter. `expand` reads them back, with
`Results.render`. Writer and reader count results alike, because a line can name the third `mul_`.

    list  = "over" letter ":" group { "," group } NL
    group = path shape | path "(" number ".." number ")(" path shape { "," path shape } ")"
    each  = "for" letter ":" line NL | "for" letter "{" NL { line NL } "}" NL

`%optimizer.state.*.exp_avg, … A` in a line stands for this name of each parameter of the list `A`,
and a `for` for its lines, once for each parameter. `*` is the parameter's name, its shape in
brackets, and after `#`, or alone, its position in the list. `%/mul_` is the first `mul_` that a
`for` made for the parameter in its module, and `%/mul_.1` the second; `%//mul_` is one outside of
modules.

Only updates have lists, so that all other texts stay as earlier releases wrote them.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .names import NAME, PATH
from .runs import INSTANCE

MIN_PARAMETERS = 5
"""Minimum length of a list."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Names of the lists; further lists are not written."""
REPEATED = re.compile(r"([^\s,\[(]+(?:\[[^\[\]]*\])?)(, | !mutates )… ([A-Z])(?![\w.])")
"""An item that is repeated for a list."""

_TITLE = re.compile(r"(?:.*: )?update(?: [@\N{MULTIPLICATION SIGN}].*)? \{\Z")
_INPUT = re.compile(rf"  %({NAME}) = (?:parameter|buffer) : \w+(\[[^\[\]]*\])")
_RESULT = re.compile(rf"  %({NAME}) = ")
_LOCAL = re.compile(rf"  %/(/?{PATH}+) = ")
_ITEM = re.compile(rf"  %({NAME})#([0-9]+) = operator\.getitem\(%\1, \2\)")
"""The line of one result of an op on lists."""
_TENSOR = re.compile(r"\w+\[[^\[\]]*\]")
_LISTED = re.compile(
    r"(?<=[\[(])[^\[\]()]+(?=[\])])|(?<=: \()[^()]+(?=\))|(?: !mutates %[^ ]+){2,}"
)
"""Items that can be repeated for a list: an argument, the results of an op, its effects."""
_NAME = re.compile(rf"%({NAME})")
_NUMBER = re.compile(r"\.[0-9]+\Z")
_OWNER = re.compile(r"(optimizer\w*\.state\.|module_[0-9]+\.)")
"""What precedes the name of a parameter in the name of an input."""
_HOLE = re.compile(rf"%/(/?{PATH}+)|\[\*\]|(?<=[#%.])\*|(?<=, )\*(?=\))")
"""What differs between the parameters in the lines of a `for`."""

Parameter = tuple[str, str]
"""The name of a parameter, and its shape in brackets."""


@dataclass
class Results:
    """The results of a graph so far.

    Attributes:
        counts: number of results by name without number.
        local: for each parameter, the results that a `for` made for it, by their names there.
    """

    counts: Counter[str] = field(default_factory=Counter)
    local: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, lines: Sequence[str], times: int = 1) -> None:
        """Count the results of lines; with -1, take them back."""
        for match in filter(None, map(_RESULT.match, lines)):
            self.counts[_NUMBER.sub("", match[1])] += times

    def render(
        self, template: Sequence[str], parameter: Parameter, index: int
    ) -> tuple[list[str], dict[str, str]]:
        """Return the lines of a `for` for one parameter, and the results that they make.

        The instance is not changed: the caller adds the results if it takes the lines.

        Raises:
            KeyError: if a line uses a result that the parameter does not have.
        """
        name, shape = parameter
        own = dict(self.local[name])
        made: dict[str, str] = {}
        added: Counter[str] = Counter()
        lines = []
        for line in template:
            if (match := _LOCAL.match(line)) is not None:
                base = _in_module(name, _NUMBER.sub("", match[1]))
                number = self.counts[base] + added[base]
                added[base] += 1
                made[match[1]] = own[match[1]] = f"{base}.{number}" if number else base

            def fill(match: re.Match[str]) -> str:
                if match[1]:
                    return f"%{own[match[1]]}"
                if match.group() == "[*]":
                    return shape
                # `*` after `#`, or alone as an argument, is the position.
                return name if match.string[match.start() - 1] in "%." else str(index)

            lines.append(_HOLE.sub(fill, line))
        return lines, made


def _in_module(parameter: str, op: str) -> str:
    """Return the name of an op's result in the module of a parameter; `/mul_` is in no module."""
    module = parameter.rpartition(".")[0]
    return f"{module}/{op}" if module and op[0] != "/" else op.removeprefix("/")


def with_lists(text: str) -> str:
    """Return a text with the updates of parameters written once."""
    lines = text.split("\n")
    out: list[str] = []
    start = 0
    for number, line in enumerate(lines):
        if line.endswith("{") and _TITLE.match(line):
            out += lines[start : number + 1]
            start = number + 1
        elif line == "}" and start and _TITLE.match(lines[start - 1]):
            out += _ListWriter(lines[start:number]).lines()
            start = number
    return "\n".join([*out, *lines[start:]])


class _ListWriter:
    """Writes the lines of an update. Call `lines` once, which reads the lines from top to bottom.

    Attributes:
        texts: the lines.
        lists: the letter of each list so far, by its parameters.
        results: the results of the lines so far.
        shapes: the shape of each parameter.
        owners: the parameter to which a name belongs, as far as lines were read.
        items: for an op on lists, the parameters of its first list, "" for an item of no parameter.
    """

    def __init__(self, lines: Sequence[str]):
        self.texts = lines
        self.lists: dict[tuple[str, ...], str] = {}
        self.results = Results()
        self.shapes: dict[str, str] = {}
        self.owners: dict[str, str] = {}
        self.items: dict[str, list[str]] = {}
        inputs = [match for match in map(_INPUT.match, lines) if match is not None]
        # First all parameters, then what belongs to them: the state may be listed before.
        for match in inputs:
            if not match[1].startswith("optimizer"):
                name = _OWNER.sub("", match[1], count=1).removesuffix(".grad")
                self.shapes.setdefault(name, match[2])
        for match in inputs:
            name = _OWNER.sub("", match[1], count=1)
            # `optimizer.state.fc.weight.exp_avg` belongs to `fc.weight`.
            for owner in (name, name.rpartition(".")[0]):
                if owner in self.shapes:
                    self.owners.setdefault(match[1], owner)

    def lines(self) -> list[str]:
        """Return the lines, after the `over` lines of the lists.

        Consecutive lines of one parameter are a group. The first group becomes a template. The
        groups after it that the template renders exactly are written as one `for`.
        """
        grouped = [(key, [*g]) for key, g in itertools.groupby(self.texts, key=self._owner_of_line)]
        out: list[str] = []
        number = 0
        while number < len(grouped):
            rest = range(number, len(grouped))
            # A shape of no dimensions does not say whether it is the parameter's, so a later group
            # makes the template. Such groups then match it without its shapes.
            shapes = ((n, self.shapes.get(grouped[n][0] or "")) for n in rest)
            first = next((n for n, shape in shapes if shape != "[]"), number)
            template = self._template(*grouped[first], first - number)
            # The results of each parameter, which are taken back if there is no list.
            made: dict[str, dict[str, str]] = {}
            for n in rest if template else ():
                name, own = grouped[n]
                results = self._matches(template, name, own, len(made))
                if results is None or name is None or name in made:
                    break
                made[name] = results
                self.results.local[name].update(results)
                self.results.add(own)
            letter = self._letter(tuple(made))
            if letter:
                if len(template) == 1:
                    out.append(f"  for {letter}:{template[0]}")
                else:
                    out += [f"  for {letter} {{", *(f"  {line}" for line in template), "  }"]
                number += len(made)
                continue
            for n, (name, results) in zip(rest, made.items(), strict=False):  # `rest` has more
                self.results.add(grouped[n][1], -1)
                for key in results:
                    del self.results.local[name][key]
            # If there is no letter left, none of these begins a list.
            for _ in range(len(made) if len(made) >= MIN_PARAMETERS else 1):
                self.results.add(grouped[number][1])
                out += map(self._with_repeated, grouped[number][1])
                number += 1
        return [*self._list_lines(), *out]

    def _matches(
        self, template: list[str], name: str | None, lines: list[str], index: int
    ) -> dict[str, str] | None:
        """Return the results of a `for`'s lines for a parameter if they are these lines."""
        if name is None:
            return None
        try:
            rendered, made = self.results.render(template, (name, self.shapes[name]), index)
        except KeyError:
            return None
        return made if rendered == lines else None

    def _owner_of_line(self, line: str) -> str | None:
        """Return the parameter whose names are the only ones of a parameter in a line.

        `None` if there is none, or several. Also note the owner of the result, so that the lines
        that use it have this owner too: call this for all lines in order.
        """
        if '"' in line or "`" in line:  # a string or symbol could look like a name
            return None
        names = _NAME.findall(line)
        item = _ITEM.match(line)
        owners = {self.owners[name] for name in names if name in self.owners}
        # A result of an op on lists belongs to the parameter that the list has at its position.
        if item is not None and int(item[2]) < len(self.items.get(item[1], ())):
            owners = {self.items[item[1]][int(item[2])]} - {""}
        elif len(owners) > 1 and (listed := _LISTED.search(line)) is not None:
            self.items[names[0]] = [
                self.owners.get(name, "") for name in _NAME.findall(listed.group())
            ]
        if len(owners) != 1 or not line.lstrip().startswith("%"):
            return None
        (owner,) = owners
        self.owners[names[0]] = owner
        return owner

    def _template(self, owner: str | None, lines: list[str], index: int) -> list[str]:
        """Return the lines of a parameter as those of a `for`; empty without a parameter.

        Args:
            index: position of the parameter in the list.
        """
        if owner is None:
            return []
        counts = Counter(_NUMBER.sub("", local) for local in self.results.local[owner])
        local = {name: key for key, name in self.results.local[owner].items()}
        template = []
        for line in lines:
            match = _RESULT.match(line)
            base = _NUMBER.sub("", match[1]) if match else ""
            op = base.rpartition("/")[2]
            # A result outside of modules, of a parameter inside one.
            if base == op and "." in owner and not _INPUT.match(line) and "#" not in op:
                op = f"/{op}"
            if match and match[1] not in self.shapes and base == _in_module(owner, op):
                local[match[1]] = f"{op}.{counts[op]}" if counts[op] else op
                counts[op] += 1
            if _ITEM.match(line):
                line = line.replace(f", {index})", ", *)")
            line = _NAME.sub(lambda m: self._form(m[1], owner, local), line)
            shape = self.shapes[owner]
            template.append(line if shape == "[]" else line.replace(shape, "[*]"))
        return template

    def _form(self, name: str, owner: str, local: dict[str, str]) -> str:
        """Return a name as it stands in the lines of a list."""
        if self.owners.get(name) != owner:
            return f"%{name}"
        if name in local:
            return f"%/{local[name]}"
        if "#" in name:
            return f"%{name.rpartition('#')[0]}#*"
        prefix, found, suffix = name.partition(owner)
        return f"%{prefix}*{suffix}" if found else f"%{name}"

    def _letter(self, parameters: tuple[str, ...]) -> str:
        """Return the letter of a list, a new one on first use.

        Return "" if the list is too short, or if no letter is left.
        """
        if len(parameters) < MIN_PARAMETERS:
            return ""
        if parameters not in self.lists and len(self.lists) < len(LETTERS):
            self.lists[parameters] = LETTERS[len(self.lists)]
        return self.lists.get(parameters, "")

    def _with_repeated(self, line: str) -> str:
        """Return a line with its items for each parameter of a list written once."""
        if '"' in line or "`" in line:  # a string or symbol could look like a name
            return line
        # The list of the items before. Items of no parameter, such as results, are for it too.
        listed: tuple[str, ...] = ()

        def repeated(match: re.Match[str]) -> str:
            """Return several items as one for a list, or unchanged if they are not those of one."""
            nonlocal listed
            text = match.group()
            separator = " !mutates " if text.startswith(" !") else ", "
            start = separator if text.startswith(separator) else ""
            items = text.removeprefix(start).split(separator)
            if "[" in text:  # results, whose sizes have commas too
                items = _TENSOR.findall(text)
            owners = tuple([self.owners.get(item[1:], "") for item in items])
            if any(owners):
                distinct = len({*owners} - {""}) == len(owners)
                listed = owners if distinct and self._letter(owners) else ()
            if len(listed) != len(items):
                return text
            forms = {self._item(*pair) for pair in zip(items, listed, strict=True)}
            if len(forms) > 1:
                return text
            return f"{start}{forms.pop()}{separator}… {self._letter(listed)}"

        return _LISTED.sub(repeated, line)

    def _item(self, item: str, owner: str) -> str:
        """Return a name or a result of a parameter as an item that is repeated for a list."""
        if "[" in item:
            return re.sub(re.escape(self.shapes[owner]) + r"\Z", "[*]", item)
        if item[0] != "%":
            return item
        local = {name: key for key, name in self.results.local[owner].items()}
        return self._form(item[1:], owner, local)

    def _list_lines(self) -> Iterator[str]:
        for parameters, letter in self.lists.items():
            yield f"  over {letter}: {', '.join(self._groups(parameters))}"

    def _groups(self, parameters: Sequence[str]) -> Iterator[str]:
        """Yield the parameters, with those of consecutive equal instances written once."""
        # Container, numbers of the instances, and what each of them has after its number.
        runs: list[tuple[str, list[int], list[str]]] = []
        for (container, number), group in itertools.groupby(parameters, key=_instance):
            start = len(container) + len(number)
            rests = [f"{name[start:]}{self.shapes[name]}" for name in group]
            before = runs[-1] if runs and number else ("", [], [])
            # The instance after the last one, with the same parameters.
            if (before[0], before[2]) == (container, rests) and before[1][-1:] == [int(number) - 1]:
                before[1].append(int(number))
                continue
            runs.append((container, [int(number)] if number else [], rests))
        for container, numbers, rests in runs:
            if len(numbers) > 1:
                yield f"{container}({numbers[0]}..{numbers[-1]})({', '.join(rests)})"
            else:
                yield from (f"{container}{''.join(map(str, numbers))}{rest}" for rest in rests)


def _instance(name: str) -> tuple[str, str]:
    """Return container and number of the instance at the start of a name; "" without one."""
    match = INSTANCE.match(name)
    return (match[1], match[2]) if match else ("", "")
