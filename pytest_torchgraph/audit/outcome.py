"""What an audit found at the end of a run: what everything that tells of it reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .facts import SettingLeft, TestFacts
from .judge import Verdict


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """What an audit found.

    Attributes:
        mode: of `--torchgraph-audit`, "" where only another option asked for the facts.
        file: the baseline, as messages name it.
        isolated: whether Dynamo was reset before each test.
        tests: how many tests ran.
        facts: of each test that calls compiled code, by its id, sorted.
        settings: the settings that tests changed, and that nobody put back.
        passed: the ids of the tests that passed, or failed as expected.
        verdict: what differs from the baseline; None where nothing was compared with it.
        compared: how many tests of the baseline were compared.
        broken: what kept the run from being watched: a mistake of ours, or a torch that is too old;
            "" while all is well.
        said: what the terminal says behind the summary.
    """

    mode: str
    file: str
    isolated: bool
    tests: int
    facts: Mapping[str, TestFacts]
    settings: Sequence[SettingLeft]
    passed: Collection[str]
    verdict: Verdict | None
    compared: int
    broken: str
    said: tuple[str, ...]
