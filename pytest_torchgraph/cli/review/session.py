"""A review under way: the cause that is selected, what was decided, and what each key does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from ...errors import TorchGraphError
from ...words import counted
from .accepting import Accepted, Written, accept, undo
from .details import cause_details, update_details
from .listing import open_causes
from .waiting import NumberedCause, Update, Waiting

Page = Literal["causes", "graphs", "help"]
Decision = Literal["", "accepted", "skipped"]

KEYS = {
    "up": "up",
    "k": "up",
    "down": "down",
    "j": "down",
    "pageup": "page up",
    "b": "page up",
    "pagedown": "page down",
    "space": "page down",
    "home": "top",
    "g": "top",
    "end": "bottom",
    "G": "bottom",
    "a": "accept",
    "y": "accept",
    "s": "skip",
    "n": "skip",
    "d": "graphs",
    "enter": "graphs",
    "left": "previous graph",
    "h": "previous graph",
    "right": "next graph",
    "l": "next graph",
    "o": "picture",
    "p": "picture",
    "u": "undo",
    "?": "help",
    "f1": "help",
    "q": "quit",
    "escape": "back",
}
"""What each key does."""

HELP = """\
up down, k j        the cause above, the one below; in a text a line up or down
a, y                accept: store the graphs of this cause, and go on
s, n                skip: leave them as they are for the next review, and go on
d, Enter            the stored graphs of this cause one by one: findings and text difference
left right, h l     there: the graph before, the next one
PageUp PageDown     scroll, as b and Space do; Home End, g G: to the top, to the bottom
o, p                open the picture of the difference
u                   undo what was accepted or skipped last
?                   these keys
q                   leave; what was not accepted waits for the next review

A stored file is written whole. Where it differs for two causes it is written once both are
accepted. One that has changed since the test ran is never written: run the test again.
"""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that can be undone.

    Attributes:
        number: of the cause.
        before: what was decided about it until then.
        written: the files that were written.
    """

    number: int
    before: Decision
    written: tuple[Written, ...] = ()


class Session:
    """The state of a review; it knows no terminal.

    Attributes:
        waiting: the updates.
        causes: those that were open when the review began.
        page: what is shown.
        selected: the number in `causes` of the one that is.
        graph: which update of it is shown on the page "graphs".
        scroll: how many lines of the text are above the screen.
        message: one line about what the last key did.
        room, length: how many lines of text the screen has, and how many there are; set by who
            draws it.
        ended: whether the review was left.
    """

    def __init__(self, waiting: Waiting):
        self.waiting = waiting
        self.states = self._at_first = waiting.states()
        self.causes = open_causes(waiting, self.states)
        self.page: Page = "causes"
        self.selected = self.graph = self.scroll = 0
        self.message = ""
        self.room = self.length = 0
        self.ended = False
        self.decisions: dict[int, Decision] = {}
        self._history: list[Decided] = []
        self._details: dict[str, list[str]] = {}

    @property
    def cause(self) -> NumberedCause:
        """The cause that is selected."""
        return self.causes[self.selected]

    @property
    def update(self) -> Update:
        """The update that is shown, or whose picture is opened."""
        return self.cause.updates[self.graph]

    @property
    def text(self) -> list[str]:
        """The lines of text that are scrolled."""
        if self.page == "help":
            return HELP.splitlines()
        if self.page == "causes":
            return cause_details(self.waiting, self.cause, self.states)
        target = self.update.target
        if target not in self._details:
            self._details[target] = update_details(self.update)
        return self._details[target]

    def status(self, cause: NumberedCause) -> str:
        """What has become of a cause, in few words; "" for nothing yet."""
        kinds = [self.states[update.target][0] for update in cause.updates]
        if all(kind == "stored" for kind in kinds):
            return "stored"
        decision = self.decisions.get(cause.number, "")
        left = len(kinds) - kinds.count("stored")
        if decision == "accepted":
            return f"accepted, {left} left"
        return decision or (f"{left} left" if left < len(kinds) else "")

    def press(self, key: str) -> Path | None:
        """Do what a key means.

        Args:
            key: a character, or the name of a key as in `KEYS`.

        Returns:
            a picture to open; None for none.
        """
        self.message = ""
        action = KEYS.get(key, "")
        if action == "quit":
            self.ended = True
        elif action == "accept":
            self._accept()
        elif action == "skip":
            self._decide(Decided(self.cause.number, self._decision), "skipped")
            self._go_on()
        elif action == "undo":
            self._undo()
        elif action == "picture":
            return self._picture()
        elif action in ("help", "graphs"):
            self._show("help" if action == "help" else "graphs")
        elif action == "back":
            self._show("causes")
        elif action in ("next graph", "previous graph"):
            self._turn(1 if action == "next graph" else -1)
        elif action:
            self._move(action)
        elif len(key) == 1 and key.isprintable():
            self.message = f"{key} means nothing here; ? lists the keys"
        return None

    def summary(self) -> str:
        """What was stored since the review began, for the terminal after it."""
        new = sum(
            state == "stored" and self._at_first[target][0] != "stored"
            for target, (state, _) in self.waiting.states().items()
        )
        return f"{counted(new, 'graph')} stored" if new else "nothing was stored"

    @property
    def _decision(self) -> Decision:
        return self.decisions.get(self.cause.number, "")

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {cause.number: k for k, cause in enumerate(self.causes)}

    def _decide(self, decided: Decided, decision: Decision) -> None:
        self._history.append(decided)
        self.decisions[decided.number] = decision

    def _accept(self) -> None:
        cause = self.cause
        numbers = {k for k, decision in self.decisions.items() if decision == "accepted"}
        accepted = accept(self.waiting, cause.updates, {cause.number, *numbers})
        self.states = self.waiting.states()
        self.message = _outcome(accepted)
        if accepted.written or accepted.held:
            written = tuple(each for _, each in accepted.written)
            self._decide(Decided(cause.number, self._decision, written), "accepted")
        if self.status(cause) == "stored" and not accepted.written:
            self.message = "all of it is stored already"
        if not (accepted.refused or accepted.outside):
            self._go_on()

    def _undo(self) -> None:
        if not self._history:
            self.message = "nothing was accepted or skipped yet"
            return
        decided = self._history.pop()
        problems = undo(decided.written)
        self.decisions[decided.number] = decided.before
        self.states = self.waiting.states()
        self._select(self._numbers[decided.number])
        files = counted(len(decided.written) - len(problems), "file")
        back = f"undone, {files} as before" if decided.written else "undone"
        self.message = "; ".join([back, *problems])

    def _picture(self) -> Path | None:
        from .picture import draw_difference

        try:
            return draw_difference(self.update)
        except (TorchGraphError, OSError) as error:
            self.message = f"no picture: {error}"
        return None

    def _show(self, page: Page) -> None:
        # The same key goes back: Enter opens a graph, and Enter closes it.
        self.page = "causes" if self.page == page else page
        self.scroll = 0

    def _turn(self, step: int) -> None:
        graph = self.graph + step
        if 0 <= graph < len(self.cause.updates):
            self.graph, self.scroll = graph, 0
        else:
            where = "last" if step > 0 else "first"
            self.message = f"this is the {where} graph of this cause"

    def _move(self, action: str) -> None:
        if self.page == "causes" and action in ("up", "down"):
            step = 1 if action == "down" else -1
            self._select(max(0, min(self.selected + step, len(self.causes) - 1)))
            return
        last = max(0, self.length - self.room)
        page = max(1, self.room - 1)
        to = {
            "up": self.scroll - 1,
            "down": self.scroll + 1,
            "page up": self.scroll - page,
            "page down": self.scroll + page,
            "top": 0,
            "bottom": last,
        }[action]
        self.scroll = max(0, min(to, last))

    def _select(self, number: int) -> None:
        if number != self.selected:
            self.selected, self.graph, self.scroll = number, 0, 0

    def _go_on(self) -> None:
        """Select the next cause about which nothing is decided, where there is one."""
        self.page = "causes"
        count = len(self.causes)
        for k in range(1, count):
            cause = self.causes[(self.selected + k) % count]
            if not self.decisions.get(cause.number) and self.status(cause) != "stored":
                self._select((self.selected + k) % count)
                return
        rest = "nothing waits any more" if self._all_stored() else "that was the last one"
        self.message = "; ".join(filter(None, [self.message, f"{rest}, q leaves"]))

    def _all_stored(self) -> bool:
        return all(state == "stored" for state, _ in self.states.values())


def _outcome(accepted: Accepted) -> str:
    parts = [f"{counted(len(accepted.written), 'graph')} stored"]
    if accepted.held:
        others = sorted({number for _, numbers in accepted.held for number in numbers})
        which = f"cause {', '.join(map(str, others))}"
        parts.append(f"{len(accepted.held)} waiting for {which} as well")
    if refused := (*accepted.refused, *accepted.outside):
        parts.append(f"{len(refused)} refused: {refused[0][1]}")
    return "; ".join(parts)
