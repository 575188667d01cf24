"""One page of several: the shards of a CI run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...audit.facts import SettingLeft, TestFacts
from ...audit.outcome import AuditOutcome
from ...errors import TorchGraphError
from ..comparisons import Comparisons
from ..surfaces.document import audit_document
from .parts import FORMAT, Data, Parts
from .run_data import RunData


def merged(pages: Sequence[Path]) -> tuple[Data, Parts]:
    """The data of a page that has what several have.

    A test that is in several pages is there as often, each named by its page: a run of another
    device or release of torch is no other attempt.

    Args:
        pages: what `--torchgraph-report` has written.

    Raises:
        TorchGraphError: for a file that is no page of this version, or that is given twice.
        OSError: if a file cannot be read.
    """
    for path, count in Counter(path.resolve() for path in pages).items():
        if count > 1:
            raise TorchGraphError(f"{path}: this page was given {count} times")
    parts = Parts()
    runs = []
    for path in pages:
        data, own = read_page(path)
        runs.append(RunData.of_page(data, own))
        obsolete = {data["run"], data["search"]}
        parts.texts |= {key: text for key, text in own.texts.items() if key not in obsolete}
    often = Counter(test["id"] for run in runs for test in run.tests)
    named = [
        _renamed(run, str(path), {test for test, count in often.items() if count > 1})
        for run, path in zip(runs, pages, strict=True)
    ]
    return _joined(named, [str(path) for path in pages]).data(parts), parts


def _renamed(run: RunData, page: str, several: set[str]) -> RunData:
    """The run with the page in the ids of the tests that are in several pages."""

    def name(test: str) -> str:
        return f"{test} @ {page}" if test in several else test

    return RunData(
        versions=run.versions,
        others=run.others,
        crashed=run.crashed,
        tests=[{**test, "id": name(test["id"])} for test in run.tests],
        words={name(test): _searched(name(test), text) for test, text in run.words.items()},
        failures={name(test): text for test, text in run.failures.items()},
        comparisons=Comparisons({name(t): data for t, data in run.comparisons.tests.items()}),
        accept=run.accept,
        audit=run.audit,
        facts=run.facts,
        shards=run.shards,
    )


def _searched(test: str, text: str) -> str:
    """What the search looks into, the id of the test among it."""
    lines = text.splitlines()
    return text if lines[:1] == [test.lower()] else "\n".join([test.lower(), *lines])


def _joined(runs: Sequence[RunData], pages: Sequence[str]) -> RunData:
    versions = {
        name: " and ".join(filter(None, dict.fromkeys(run.versions[name] for run in runs)))
        for name in runs[0].versions
    }
    tests = [test for run in runs for test in run.tests]
    return RunData(
        versions=versions,
        others=sum(run.others for run in runs),
        crashed=sum(run.crashed for run in runs),
        tests=sorted(tests, key=lambda test: (test["place"], test["id"])),
        words={key: text for run in runs for key, text in run.words.items()},
        failures={key: text for run in runs for key, text in run.failures.items()},
        comparisons=Comparisons(
            {key: found for run in runs for key, found in run.comparisons.tests.items()}
        ),
        accept="",  # `--lf` knows what failed in one of the runs
        audit=_audit(runs),
        facts={key: found for run in runs for key, found in run.facts.items()},
        shards=[
            shard for run, page in zip(runs, pages, strict=True) for shard in run.shards or [page]
        ],
    )


def _audit(runs: Sequence[RunData]) -> Data | None:
    """What the audits of all runs found; None where no run had one."""
    audits = [run.audit for run in runs if run.audit is not None]
    if not audits:
        return None
    facts = {
        test: TestFacts.from_json(values) for run in runs for test, values in run.facts.items()
    }
    document = audit_document(
        AuditOutcome(
            mode=next((each["mode"] for each in audits if each["mode"]), ""),
            file="",
            isolated=any(each["isolated"] for each in audits),
            tests=sum(each["totals"]["tests"] for each in audits),
            facts=facts,
            settings=[SettingLeft(**left) for each in audits for left in each["settings_left"]],
            passed={t for each in audits for t, told in each["tests"].items() if told["passed"]},
            verdict=None,
            compared=0,
            broken="; ".join(dict.fromkeys(each["broken"] for each in audits if each["broken"])),
            said=(),
        )
    )
    baselines = [each["baseline"] for each in audits if each["baseline"] is not None]
    document["baseline"] = _baseline(baselines, facts) if baselines else None
    return document


def _baseline(baselines: Sequence[Data], facts: Iterable[str]) -> Data:
    verdicts = [each["verdict"] for each in baselines if each["verdict"] is not None]
    return {
        "file": " and ".join(dict.fromkeys(each["file"] for each in baselines)),
        "said": [*dict.fromkeys(line for each in baselines for line in each["said"])],
        "compared": sum(each["compared"] for each in baselines),
        "verdict": _verdict(verdicts, set(facts)) if verdicts else None,
    }


def _verdict(verdicts: Sequence[Data], run: set[str]) -> Data:
    """What all shards found; a test that one of them ran is not gone."""
    every = {test for each in verdicts for test in each["gone"]}
    gone = {test for test in every if all(test in each["gone"] for each in verdicts)}
    return {
        "worse": _changes(each["worse"] for each in verdicts),
        "better": _changes(each["better"] for each in verdicts),
        "new": sorted({test for each in verdicts for test in each["new"]}),
        "gone": sorted(gone - run),
        "renamed": sorted(pair for each in verdicts for pair in each["renamed"]),
    }


def _changes(lists: Iterable[Sequence[Data]]) -> list[Data]:
    """The changes of all shards, each once with the tests of all, those of most tests first."""
    groups: dict[tuple[Any, ...], Data] = {}
    for change in (each for changes in lists for each in changes):
        key = tuple(change[part] for part in ("text", "file", "line", "function"))
        known = groups.setdefault(key, {**change, "tests": []})
        known["tests"] = sorted({*known["tests"], *change["tests"]})
    return sorted(groups.values(), key=lambda each: (-len(each["tests"]), each["text"]))


_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
_PART = re.compile(r'<script type="text/plain" data-part="(\w+)">(.*?)</script>', re.DOTALL)


def read_page(path: Path) -> tuple[Data, Parts]:
    """The data of a page, and the parts that they name.

    Args:
        path: what `--torchgraph-report` has written.

    Raises:
        TorchGraphError: for a file that is no page, or one of another version of this plugin.
        OSError: if the file cannot be read.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    found = _DATA.search(text)
    if found is None:
        raise TorchGraphError(
            f"{path}: this is no page of a run, which pytest writes with --torchgraph-report=FILE"
        )
    try:
        data: Data = json.loads(found[1])
    except ValueError as error:
        raise TorchGraphError(f"{path}: the data of this page are not whole: {error}") from error
    if data.get("format") != FORMAT:
        raise TorchGraphError(
            f"{path}: this page was written by another version of pytest-torchgraph "
            f"(its format is {data.get('format')}, this version reads {FORMAT}): "
            "write all pages with one version"
        )
    parts = Parts(dict(_PART.findall(text)))
    missing = {each["part"] for each in data["tests"]} - parts.texts.keys()
    if missing:
        raise TorchGraphError(f"{path}: this page is not whole: details of its tests are missing")
    return data, parts
