"""A page or baseline of a stranger is read as text, or is one error with its name."""

from __future__ import annotations

import base64
import copy
import gzip
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_torchgraph.cli import main
from pytest_torchgraph.graph import problem_finding
from pytest_torchgraph.report.page import gather, html

Data = dict[str, Any]

CAUSE = {
    "kind": "break", "file": "a.py", "function": "f", "text": "t", "code": "c", "line": 1,
    "count": 1, "shared": False, "guard": "", "guard_place": "",
}  # fmt: skip
FUNCTION = {
    "key": "a.py | f", "line": 1, "called": True, "ops": [1], "backends": ["eager"],
    "backward": False, "nested": False,
}  # fmt: skip
FACTS = {
    "calls": 1, "graphs": 1, "backwards": 0, "ops": 1, "seconds": 0.5, "compiles": True,
    "causes": [CAUSE], "frames": ["a.py:1 f"], "callables": ["a.py:1 f"], "backends": ["eager"],
    "shared": False, "nested": False, "eager_calls": 0, "frame_seconds": [0.5],
    "functions": [FUNCTION],
}  # fmt: skip
CHANGE = {"text": "worse", "file": "a.py", "line": 1, "function": "f", "tests": ["t.py::a"]}
AUDIT: Data = {
    "mode": "check",
    "broken": None,
    "isolated": True,
    "totals": {"tests": 1},
    "settings_left": [{"name": "s", "before": "1", "after": "2", "test": "t.py::a"}],
    "tests": {"t.py::a": {"passed": True}},
    "baseline": {
        "file": "audit.json",
        "said": ["x"],
        "compared": 1,
        "verdict": {
            "worse": [CHANGE], "better": [], "new": ["n"], "gone": ["g"], "renamed": [["a", "b"]]
        },
    },
}  # fmt: skip
FINDING = {**problem_finding("op counts differ").to_json(), "files": ["f"]}
FINDING["cost"] = {"flops": 8, "saved_bytes": 16}


def page_of(name: str) -> tuple[Data, Data, list[str], Data]:
    """Return the data of a page with one failed test, its run part, search texts and details."""
    test = f"{name}.py::a"
    details = {"message": name, "captures": [], "ranks": [], "differences": [], "pictures": []}
    summary = {
        "id": test,
        "outcome": "failed",
        "seconds": 0.5,
        "where": f"{name}.py:1",
        "place": [f"{name}.py", 1],
        "facts": {"findings": 1, "breaks": 0, "recompiles": 0, "disagree": False},
    }
    comparison = {
        "problem": "p",
        "releases": ["2.12.0", "2.13.0"],
        "difference": {"findings": [FINDING], "left": 0},
    }
    run = {
        "versions": {"torch": "2.13.0", "pytest": "9", "Python": "3.11"},
        "others": 1,
        "crashed": 0,
        "accept": "",
        "failures": {test: "it failed"},
        "comparisons": {test: [comparison]},
        "facts": {test: FACTS},
        "shards": [],
    }
    audit = {**AUDIT, "tests": {test: {"passed": True}}}
    data = {"format": html.FORMAT, "tests": [summary], "audit": audit}
    return copy.deepcopy((data, run, [test], details))


def text_of(page: tuple[Data, Any, Any, Any]) -> str:
    data, run, search, details = page
    parts = html.Parts()
    if data.get("tests"):
        data["tests"][0].setdefault("part", parts.add(details))
    return html.page({**data, "run": parts.add(run), "search": parts.add(search)}, parts.texts)


@pytest.fixture
def merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Merge texts as pages `0.html`, `1.html`, ... and return the exit code and the output."""

    def merge(*texts: str) -> tuple[int, str]:
        files = [tmp_path / f"{number}.html" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        code = main(["merge", *map(str, files), "-o", str(tmp_path / "out.html")])
        captured = capsys.readouterr()
        return code, captured.err or captured.out

    return merge


def test_page_of_the_right_form_is_merged(merge: Any, tmp_path: Path, capsys: Any) -> None:
    assert merge(text_of(page_of("t")), text_of(page_of("u")))[0] == 0
    data, parts = gather.read_page(tmp_path / "out.html")
    assert [test["id"] for test in data["tests"]] == ["t.py::a", "u.py::a"]
    assert parts.get(data["tests"][1]["part"])["message"] == "u"
    assert data["causes"]["list"][0]["files"] == ["t.py::a", "u.py::a"]
    assert data["audit"]["totals"]["graph_breaks"] == 2
    assert data["audit"]["baseline"]["verdict"]["renamed"] == [["a", "b"], ["a", "b"]]
    twice = [str(tmp_path / "0.html")] * 2
    assert main(["merge", *twice, "-o", str(tmp_path / "out.html")]) == 2
    assert f"{twice[0]}: this page is given 2 times" in capsys.readouterr().err


def values(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in data."""
    yield path
    keys = data if isinstance(data, dict) else range(len(data) if isinstance(data, list) else 0)
    for key in keys:
        yield from values(data[key], (*path, key))


PATHS = [
    pytest.param(number, path, id=f"{number}:{'.'.join(map(str, path))}")
    for number, part in enumerate(page_of("t")[:3])
    for path in values(part)
]


@pytest.mark.slow("every value of a page", unless=["0:tests*", "1:comparisons*"])
@pytest.mark.parametrize(("number", "path"), PATHS)
def test_wrong_type_anywhere_never_harms_other_pages(
    merge: Any, tmp_path: Path, number: int, path: tuple[Any, ...]
) -> None:
    good = text_of(page_of("u"))
    for wrong in ({"wrong": [1]}, [[1]], 1.5, None, "9" * 30):
        page: list[Any] = [*page_of("t")]
        place: Any = page
        for key in (number, *path)[:-1]:
            place = place[key]
        place[(number, *path)[-1]] = wrong
        try:
            text = text_of(tuple(page))  # type: ignore[arg-type]
        except (AttributeError, LookupError, TypeError, ValueError):
            continue  # no such page can be written
        code, said = merge(text, good)
        out = tmp_path / "out.html"
        if code == 2:
            assert said.count("\n") == 1
            assert f"{tmp_path / '0.html'}: " in said
            assert not out.exists()
        else:
            assert code == 0
            data, parts = gather.read_page(out)
            assert data["tests"][-1] == json.loads(json.dumps(data["tests"][-1]))
            assert parts.get(data["tests"][-1]["part"])["message"] == "u"
            assert data["causes"] is not None
            out.unlink()


def packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data)).decode()


def key_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def with_part(key: str, text: str) -> str:
    part = f'<script type="text/plain" data-part="{key}">{text}</script>\n'
    return text_of(page_of("t")).replace("<script type=", f"{part}<script type=", 1)


DATA = re.compile(r'(id="data">)(.*?)(</script>)')


def with_data(text: str) -> str:
    return DATA.sub(rf"\g<1>{text}\g<3>", text_of(page_of("t")))


MALFORMED = {
    "empty": "",
    "missing part": text_of(page_of("t")).partition("data-part=")[0],
    "no data": "<html>",
    "deep": with_data("[" * 200_000),
    "infinity": with_data('{"format": Infinity}'),
    "huge float": text_of(page_of("t")).replace('"seconds":0.5', '"seconds":1e999'),
    "huge int": text_of(page_of("t")).replace('"seconds":0.5', f'"seconds":{"9" * 5000}'),
    "no tests": with_data('{"format": 2}'),
    "another version": with_data('{"format": 99}'),
    "html": with_part("z", '</script ><meta http-equiv="refresh" content="0;url=x"><h1>in</h1>'),
    "not base64": with_part("z", "!!!"),
    "truncated part": with_part(key_of(b"{}" * 99), packed(b"{}" * 99)[:20]),
    "two streams": with_part(key_of(b"{}"), base64.b64encode(gzip.compress(b"{}") * 2).decode()),
    "tags that nothing closes": '<script type="application/json" id="data">' * 20_000,
    "other digest": with_part(key_of(b"{}"), packed(b"[]")),
    "bomb": "",  # made by the test, because that takes a second
}
SAID = {
    "no data": "not a page written by pytest --torchgraph-report=FILE",
    "another version": f"format 99, this version reads {html.FORMAT}",
    "missing part": "the page is incomplete",
}


@pytest.mark.slow("decompresses 256 MiB", only=["bomb"])
@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_page_is_one_error_with_its_name(merge: Any, tmp_path: Path, kind: str) -> None:
    page = with_part("z", packed(b" " * (300 << 20))) if kind == "bomb" else MALFORMED[kind]
    code, said = merge(page, text_of(page_of("u")))
    assert code == 2
    assert said.startswith(f"pytest_torchgraph: {tmp_path / '0.html'}: ")
    assert said.count("\n") == 1
    assert SAID.get(kind, "") in said
    assert not (tmp_path / "out.html").exists()


def test_parts_of_all_pages_share_one_limit(merge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(page_of("t"))
    size = sum(
        len(gzip.decompress(base64.b64decode(part)))
        for part in re.findall(r'data-part="\w+">(.*?)</script>', text)
    )
    for pages in (1, 2):
        monkeypatch.setattr(html.Parts.__init__, "__defaults__", (size * pages,))
        texts = [text_of(page_of(name)) for name in "tuv"]
        assert merge(*texts[:pages])[0] == 0
        code, said = merge(*texts[: pages + 1])
        assert code == 2
        assert "the parts of all pages have more than" in said


def test_page_cannot_take_the_parts_of_another(merge: Any, tmp_path: Path) -> None:
    """A page that names a part of another page as its own run data is an error."""
    victim = text_of(page_of("u"))
    data = json.loads(DATA.search(victim)[2])  # type: ignore[index]
    part = data["tests"][0]["part"]
    hostile = text_of(page_of("t"))
    own = json.loads(DATA.search(hostile)[2])  # type: ignore[index]
    for key in ("run", "search"):
        code, said = merge(victim, hostile.replace(own[key], part))
        assert code == 2
        assert str(tmp_path / "1.html") in said


def test_page_does_not_speak_for_a_test_of_another_page(merge: Any, tmp_path: Path) -> None:
    """Neither with the name that the other test gets in the merged page, nor with facts alone."""
    renamed = json.dumps(page_of("t")).replace("t.py::a", f"t.py::a @ {tmp_path / '0.html'}")
    only_facts = page_of("t")
    only_facts[0]["tests"] = []
    only_facts[2].clear()
    only_facts[1].update(failures={}, comparisons={})
    unlisted = page_of("v")
    unlisted[1]["comparisons"]["t.py::a"] = []
    pages = [page_of("t"), page_of("t"), json.loads(renamed), only_facts, unlisted]
    assert merge(*map(text_of, pages))[0] == 0
    data, parts = gather.read_page(tmp_path / "out.html")
    run = parts.get(data["run"])
    assert len({test["id"] for test in data["tests"]}) == 4
    assert sum(map(bool, run["comparisons"].values())) == 4
    assert len(run["facts"]) == 5
    assert data["audit"]["totals"]["graph_breaks"] == 5


@pytest.mark.parametrize("what", ["harmless", "op", "op counts"])
def test_finding_does_not_speak_for_that_of_another_page(
    merge: Any, tmp_path: Path, what: str
) -> None:
    """Although it has the tokens of the other one."""
    evil = page_of("a")
    finding = evil[1]["comparisons"]["a.py::a"][0]["difference"]["findings"][0]
    finding["what"] = what
    assert merge(text_of(page_of("t")), text_of(evil))[0] == 0
    data, _ = gather.read_page(tmp_path / "out.html")
    assert {cause["what"] for cause in data["causes"]["list"]} == {what, FINDING["what"]}


def test_page_does_not_say_that_a_test_of_another_page_passed(merge: Any, tmp_path: Path) -> None:
    """Nor does it take this away by renaming the test."""
    failed, facts_only, liar = page_of("t"), page_of("u"), page_of("v")
    failed[0]["audit"]["tests"] = {}
    facts_only[1]["facts"]["w.py::a"] = FACTS
    liar[0]["audit"]["tests"]["t.py::a"] = {"passed": True}
    assert merge(*map(text_of, (failed, facts_only, liar, page_of("w"))))[0] == 0
    data, _ = gather.read_page(tmp_path / "out.html")
    passed = {test: result["passed"] for test, result in data["audit"]["tests"].items()}
    assert passed[f"t.py::a @ {tmp_path / '0.html'}"] is False
    assert passed[f"w.py::a @ {tmp_path / '1.html'}"] is False
    assert passed[f"w.py::a @ {tmp_path / '3.html'}"] is True


def test_tests_of_equal_changes_are_sorted_once(merge: Any, monkeypatch: Any) -> None:
    """Otherwise a page of 1 MB takes a minute."""
    page = page_of("t")
    changes = [{**CHANGE, "tests": [f"t{number}"]} for number in range(1000)]
    page[0]["audit"]["baseline"]["verdict"].update(worse=changes)
    sizes = []

    def count(values: Any, **options: Any) -> list[Any]:
        result = sorted(values, **options)
        sizes.append(len(result))
        return result

    monkeypatch.setattr(gather, "sorted", count, raising=False)
    assert merge(text_of(page))[0] == 0
    assert sum(sizes) < 4000


@pytest.mark.skipif(os.name != "posix", reason="FIFOs need rights on Windows")
def test_endless_page_is_one_error_with_its_name(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "zero.html").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo.html")
    for name in ("zero.html", "fifo.html"):
        for files in ([name], [name, "page.html"], ["page.html", name]):
            (tmp_path / "page.html").write_text(text_of(page_of("t")))
            paths = [str(tmp_path / file) for file in files]
            assert main(["merge", *paths, "-o", str(tmp_path / "out.html")]) == 2
            assert f"not a regular file: '{tmp_path / name}'" in capsys.readouterr().err
    assert not (tmp_path / "out.html").exists()


def test_merged_cause_has_each_form(merge: Any, tmp_path: Path) -> None:
    """Although the other page has the words and tokens of the first."""
    pages = [page_of("t"), page_of("u"), page_of("v")]
    for page, constant in zip(pages, (2, 3, 2), strict=True):
        (comparisons,) = page[1]["comparisons"].values()
        after = f"%y = aten.add.Tensor(%x, {constant}) : f32[2]"
        comparisons[0]["difference"]["findings"][0].update(after=after, file="x", forms=[])
    assert merge(*map(text_of, pages))[0] == 0
    data, _ = gather.read_page(tmp_path / "out.html")
    (cause,) = data["causes"]["list"]
    assert [(form["file"], form["after"][-11:]) for form in cause["forms"]] == [
        ("t.py::a", "2) : f32[2]"),
        ("u.py::a", "3) : f32[2]"),
    ]


def test_page_does_not_choose_the_sign_of_another(merge: Any, tmp_path: Path) -> None:
    pages = [page_of("t"), page_of("u")]
    (comparisons,) = pages[0][1]["comparisons"].values()
    comparisons[0]["difference"]["findings"][0]["sign"] = "="
    assert merge(*map(text_of, pages))[0] == 0
    data, _ = gather.read_page(tmp_path / "out.html")
    assert [cause["sign"] for cause in data["causes"]["list"]] == ["=", "!"]


def test_merged_cause_has_forms_that_print_alike(merge: Any, tmp_path: Path) -> None:
    pages = [page_of("t"), page_of("u"), page_of("v"), page_of("w")]
    for page, form in zip(pages, ("1", "2", "1", None), strict=True):
        (comparisons,) = page[1]["comparisons"].values()
        comparisons[0]["difference"]["findings"][0].update(form=form)
    assert merge(*map(text_of, pages))[0] == 0
    data, _ = gather.read_page(tmp_path / "out.html")
    (cause,) = data["causes"]["list"]
    assert [form["file"] for form in cause["forms"]] == ["t.py::a", "u.py::a", "w.py::a"]
