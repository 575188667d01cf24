"""Assertions on a whole training step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..graph.checks import MAX_PLACES
from ..graph.events import UpdatedParameter
from ..graph.model import Graph
from ..settings.paths import allows, patterns
from ..words import first_lines
from .subject import Subject


def _problems(parameter: UpdatedParameter) -> Iterator[str]:
    """Yield what is wrong with the update of a parameter, as ends of a sentence."""
    if not parameter.got_gradient:
        yield "gets no gradient in this step"
    if not parameter.is_held:
        yield "is in no optimizer of updates="
    if parameter.stale is not None:
        line = f"{parameter.stale}: {parameter.stale.code}"
        yield f"its gradient from before the step is added to, by the backward at {line}"
    if not parameter.writes:
        yield "is not written by the update"
    elif len(parameter.writes) > 1:
        places = ", ".join(f"{source}: {source.code}" for source in parameter.writes if source)
        yield f"is written {len(parameter.writes)} times, at {places or 'unknown lines'}"


def _use(forwards: Sequence[Graph], name: str) -> str:
    """Return the line at which a forward uses a parameter, for a message."""
    for graph in forwards:
        for user in graph.users.get(name, ()):
            if (source := graph[user].source) is not None:
                return f" (used at {source}: {source.code})"
    return " (not used in the forward)"


class TrainingChecks(Subject):
    """Assertions on a whole training step; see `Capture`."""

    def assert_updated(self, allow: str | Sequence[str] = ()) -> None:
        """Assert that a training step updates each parameter of the named modules once.

        Each parameter that requires a gradient must get one in this step, be in an optimizer, and
        be written by the update exactly once: by one step of an optimizer, or by one line. No
        gradient from before the step may be added to.

        Args:
            allow: regular expressions, or literal parts, searched in the names of parameters that
                need not be updated.

        Raises:
            AssertionError: with each of the other parameters, what is wrong, and the lines; if no
                parameter is left to check.
            CaptureError: without `updates=`.
        """
        allowed = patterns(allow)
        parameters = [p for p in self._training if not allows(allowed, p.name)]
        if not parameters:
            raise AssertionError(
                "no parameter to check: updates= must name a module with parameters that require a "
                "gradient, and allow= must not match all of them"
            )
        forwards = self.phase("forward")
        problems = {p.name: [*_problems(p)] for p in parameters}
        wrong = {name: lines for name, lines in problems.items() if lines}
        if wrong:
            head = f"{len(wrong)} of {len(parameters)} parameters are not updated exactly once:"
            lines = [
                f"  {name}: {'; '.join(texts)}{_use(forwards, name)}"
                for name, texts in wrong.items()
            ]
            raise AssertionError("\n".join([head, *lines]))

    def assert_nothing_frozen(self, allow: str | Sequence[str] = ()) -> None:
        """Assert that no number that changes from step to step is a constant of a compiled graph.

        Args:
            allow: regular expressions, or literal parts, searched in the names of the numbers, such
                as `optimizer.param_groups.0.lr`.

        Raises:
            AssertionError: with each number, its values, the graph and the line.
            CaptureError: see `Capture.frozen`.
        """
        allowed = patterns(allow)
        found = [frozen for frozen in self.frozen if not allows(allowed, frozen.name)]
        if found:
            lines = first_lines([f"  {frozen}" for frozen in found], MAX_PLACES, "constant")
            advice = (
                "Make the number a tensor. For the `lr` of torch.optim, also pass `foreach=False`, "
                "or on an accelerator `capturable=True`"
            )
            raise AssertionError(
                "\n".join(["numbers frozen into compiled graphs:", *lines, advice])
            )
