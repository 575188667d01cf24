"""The baseline of an audit as a file: write, read, merge."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchgraph.audit import Baseline, BaselineError, Entry, Function, ReleaseSection
from pytest_torchgraph.audit.baseline import merge, read, to_text
from pytest_torchgraph.cli import main

ENTRIES = st.builds(
    Entry,
    st.integers(1, 9),
    st.integers(0, 99),
    st.integers(0, 3),
    st.lists(st.sampled_from(["eager", "inductor"]), unique=True).map(tuple),
    st.booleans(),
    st.just(True),
    st.booleans(),
    st.dictionaries(st.text(max_size=20), st.integers(1, 9), max_size=3).map(
        lambda causes: dict(sorted(causes.items()))
    ),
    st.lists(st.text(max_size=20), max_size=2).map(tuple),
)
FUNCTIONS = st.builds(
    Function,
    st.sets(st.integers(1, 9)).map(lambda ops: tuple(sorted(ops))),
    st.lists(st.sampled_from(["eager", "inductor"]), unique=True).map(tuple),
    st.booleans(),
    st.booleans(),
)
KEYS = st.text(min_size=1, max_size=20).filter(lambda t: t != "end")
BASELINES = st.dictionaries(
    st.sampled_from(["2.9", "2.13", "2.15"]),
    st.builds(ReleaseSection, st.dictionaries(KEYS, ENTRIES), st.dictionaries(KEYS, FUNCTIONS)),
)


@pytest.mark.slow("many random graphs")
@settings(max_examples=30)
@given(BASELINES)
def test_baseline_round_trip(tmp_path_factory: pytest.TempPathFactory, baseline: Baseline) -> None:
    path = tmp_path_factory.mktemp("baseline") / "audit.json"
    path.write_text(to_text(baseline), "utf-8")
    assert read(path) == baseline


@settings(max_examples=10)
@given(BASELINES)
def test_baseline_text_is_independent_of_order(baseline: Baseline) -> None:
    turned = {
        release: ReleaseSection(
            dict(reversed(section.tests.items())), dict(reversed(section.functions.items()))
        )
        for release, section in reversed(baseline.items())
    }
    assert to_text(turned) == to_text(baseline)


def test_baseline_releases_are_sorted() -> None:
    text = to_text({"2.13": ReleaseSection({}), "2.9": ReleaseSection({})})
    assert text.index('"2.9"') < text.index('"2.13"')


def test_baseline_gets_one_line_per_test() -> None:
    one = to_text({"2.13": ReleaseSection({"a": Entry(1)})}).splitlines()
    for test in ("0", "b"):
        two = to_text({"2.13": ReleaseSection({"a": Entry(1), test: Entry(2)})}).splitlines()
        assert len(two) == len(one) + 1
        assert set(one) < set(two)


def test_merge_of_shard_baselines_with_a_base() -> None:
    base = {"2.13": ReleaseSection({"a": Entry(1), "b": Entry(1), "c": Entry(1), "gone": Entry(1)})}
    shards = [
        {
            "2.13": ReleaseSection(
                {"a": Entry(2), "b": Entry(1), "c": Entry(1), "gone": Entry(1), "new": Entry(5)}
            )
        },
        {
            "2.13": ReleaseSection({"a": Entry(1), "b": Entry(3), "c": Entry(1)}),
            "2.15": ReleaseSection({"a": Entry(1)}),
        },
    ]
    whole = {
        "2.13": ReleaseSection({"a": Entry(2), "b": Entry(3), "c": Entry(1), "new": Entry(5)}),
        "2.15": ReleaseSection({"a": Entry(1)}),
    }
    assert merge(shards, base) == whole
    assert merge(shards[::-1], base) == whole


def test_baseline_merge_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name in ("a", "b"):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(to_text({"2.13": ReleaseSection({name: Entry(1)})}))
    whole = tmp_path / "audit.json"
    assert main(["merge", *map(str, paths), "-o", str(whole)]) == 0
    assert whole.read_text() == to_text({"2.13": ReleaseSection({"a": Entry(1), "b": Entry(1)})})
    assert capsys.readouterr().out == f"{whole}: 2 tests\n"
    assert main(["merge", str(tmp_path / "no.json"), "-o", str(whole)]) == 2
    assert "no.json" in capsys.readouterr().err
    (tmp_path / "page.html").write_text("<!doctype html>")
    assert main(["merge", str(paths[0]), str(tmp_path / "page.html"), "-o", str(whole)]) == 2
    assert "give files of one kind" in capsys.readouterr().err


WRITTEN = '{"torchgraph-audit": 2, "torch": {"2.13": {"functions": {}, "tests": {"a": %s}}}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "invalid baseline (Expecting value"),
        ("[]", "not a baseline written by --torchgraph-audit: delete the file"),
        ('{"torchgraph-audit": 3}', "version 3"),
        ('{"torchgraph-audit": 1, "torch": {}}', "recorded by pytest-torchgraph 0.2, "),
        (
            '{"torchgraph-audit": 2}',
            "invalid baseline (file.torch: expected dict, got None); ",
        ),
        (WRITTEN % '{"graphs": Infinity}', "invalid baseline (Infinity is out of range)"),
        (WRITTEN % f'{{"graphs": {"9" * 30}}}', "is out of range)"),
        (WRITTEN % f'{{"graphs": {"9" * 5000}}}', "invalid baseline ("),
        (WRITTEN % '{"graphs": 1, "backends": "abc"}', "a.backends: expected tuple, got 'abc'"),
        (WRITTEN % '{"graphs": 1, "causes": {"b": []}}', "a.causes.b: expected int, got []"),
        (
            WRITTEN.replace("2.13", "two") % '{"graphs": 1}',
            "invalid literal for int() with base 10: 'two'",
        ),
        ('{"torchgraph-audit": 2, "torch": {"2.13": {}}}', "missing key 'tests'"),
        ('{"torchgraph-audit": 2, "torch": ' + "[" * 200_000, "nested too deep"),
        (WRITTEN % '{"grahps": 1}', "invalid baseline (a: unknown: grahps)"),
        ('{"torchgraph-audit": 2,\n<<<<<<< ours\n', ":2: merge conflict"),
    ],
)
def test_malformed_baseline_is_refused(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.json"
    path.write_text(text)
    with pytest.raises(BaselineError, match=r"audit\.json") as error:
        read(path)
    assert message in str(error.value)
    good, out = tmp_path / "good.json", tmp_path / "out.json"
    good.write_text(WRITTEN % '{"graphs": 1}')
    for words in ([good, path, "-o", out], [good, "-o", path]):
        code = main(["merge", *map(str, words)])
        said = capsys.readouterr().err
        assert code == 2
        if text.startswith("{"):  # else it is no baseline, but a page
            assert f"{path}:" in said
        assert said.count("\n") == 1
        assert not out.exists()
        assert path.read_text() == text
