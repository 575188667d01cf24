"""GitHub workflows run `.ci/run` and the other scripts with few rights; output of the action."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from console_script import environment_with, write_script

import pytest_torchgraph

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / "action" / "action.yml"
COMPARE = ROOT / "action" / "compare" / "action.yml"

Data = dict[str, Any]


def read(path: Path) -> Data:
    data: Data = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data


def jobs(path: Path) -> dict[str, Data]:
    found: dict[str, Data] = read(path)["jobs"]
    return found


def steps(path: Path) -> list[Data]:
    return [step for job in jobs(path).values() for step in job.get("steps", ())]


def commands(path: Path) -> list[str]:
    return [step["run"] for step in steps(path) if "run" in step]


def test_workflows_exist() -> None:
    assert {path.stem for path in WORKFLOWS} == {"tests", "nightly", "release"}


def test_linux_runs_all_of_ci() -> None:
    job = jobs(ROOT / ".github" / "workflows" / "tests.yml")["linux"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]


def test_classifiers_equal_the_tested_pythons() -> None:
    matrix = jobs(ROOT / ".github" / "workflows" / "tests.yml")["linux"]["strategy"]["matrix"]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text) == matrix["python"]
    assert f'requires-python = ">={matrix["python"][0]}"' in text


@pytest.mark.parametrize("page", ["docs/tutorial.md", "action/README.md"])
def test_documented_action_has_this_release(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    at = re.findall(r"uses: pytest-torchgraph/pytest-torchgraph/action@(\S+)", text)
    assert at == [f"v{pytest_torchgraph.__version__}"]
    defaults = {name: data.get("default") for name, data in read(ACTION)["inputs"].items()}
    assert f"--torchgraph-artifacts={defaults['artifacts']} " in text
    assert f"--torchgraph-report={defaults['report']}\n" in text


def pasted(name: str) -> Data:
    """Return a workflow of the how-to about saved runs."""
    text = (ROOT / "docs" / "howto" / "compare_runs.md").read_text(encoding="utf-8")
    _, _, after = text.partition(f"# .github/workflows/{name}.yml\n")
    data: Data = yaml.safe_load(after.partition("```")[0])
    return data


@pytest.mark.parametrize("name", ["compare", "comment"])
def test_pasted_workflow_has_this_release_and_inputs_that_exist(name: str) -> None:
    release = pytest_torchgraph.__version__
    used = [step for job in pasted(name)["jobs"].values() for step in job["steps"]]
    assert {
        step["uses"].partition("@")[2]
        for step in used
        if step.get("uses", "").startswith("pytest-torchgraph/pytest-torchgraph/action/compare@")
    } == {f"v{release}"}
    installs = [step["run"] for step in used if "run" in step]
    assert installs
    assert all(f"pytest-torchgraph=={release}" in install for install in installs)
    for step in used:
        if "action/compare@" in step.get("uses", ""):
            assert step["with"].keys() <= read(COMPARE)["inputs"].keys()


@pytest.mark.parametrize("name", ["compare", "comment"])
def test_job_that_comments_does_not_run_the_head(name: str) -> None:
    """Only this job can write; `action/compare` runs tests only with a command."""
    workflow = pasted(name)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        can_write = "write" in job["permissions"].values()
        actions = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
        compare = job["steps"][[a.endswith("action/compare") for a in actions].index(True)]["with"]
        assert can_write == ("token" in compare) == (compare["command"] == "")
        assert can_write == ("actions/checkout" not in actions)
        installs = [step["run"] for step in job["steps"] if "run" in step]
        assert not can_write or all("--no-deps pytest-torchgraph==" in run for run in installs)


def test_readme_of_actions_lists_all_inputs() -> None:
    text = (ROOT / "action" / "README.md").read_text(encoding="utf-8")
    for part, path in zip(text.split("\n# "), (ACTION, COMPARE), strict=True):
        listed = dict(re.findall(r"^\| `([\w-]+)` \| (?:`(.*?)`)? ?\|", part, re.M))
        assert listed == {name: data["default"] for name, data in read(path)["inputs"].items()}


def test_the_changelog_begins_with_this_release() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, latest, *_ = re.findall(r"^## \[(.+?)\](?: - (.+))?$", text, re.M)
    assert unreleased == ("Unreleased", "")
    version, date = latest
    assert version == pytest_torchgraph.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_commands_of_its_own(path: Path) -> None:
    """Every command is a script that can be run locally."""
    assert commands(path)
    for command in commands(path):
        shell, script = shlex.split(command)
        assert shell == "bash"
        assert re.fullmatch(r"\.ci/\w+", script)
        assert (ROOT / script).is_file()


def test_every_script_runs_somewhere_on_github_or_in_ci_run() -> None:
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    used = [command for path in WORKFLOWS for command in commands(path)]
    for script in (ROOT / ".ci").iterdir():
        if script.name == "cuda":
            continue  # GitHub's machines have no GPU
        assert f"bash .ci/{script.name}" in used or f"bash .ci/{script.name}\n" in run, script


@pytest.mark.parametrize(
    ("release", "torch"),
    [((), "torch"), (("2.12",), "torch==2.12.*"), (("2.12.1",), "torch==2.12.1")],
    ids=["newest", "minor", "patch"],
)
def test_newest_installs_test_dependencies_and_runs_the_readme(
    release: tuple[str, ...], torch: str
) -> None:
    script = (ROOT / ".ci" / "newest").read_text(encoding="utf-8")
    assert ".ci/newest" not in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    only_parse, _, runs = script.partition("rm -rf .venv/newest")
    assert 'pip install -q "$torch"\n' in runs
    shown = f'{only_parse}printf "%s\\n" "$torch" "${{commands[@]}}" "${{beside[@]}}"'
    shell = ["bash", "-c", shown, ".ci/newest", *release]
    ran = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True)
    requirement, command, *beside = ran.stdout.splitlines()
    assert requirement == torch
    assert command.startswith(".venv/bin/python -m pytest")
    names = {re.match(r"[\w-]+", each)[0] for each in beside}  # type: ignore[index]
    assert {"numpy", "transformers", "pytest-xdist", "ruff"} <= names
    assert "torch" not in names


def test_cuda_script_ends_in_time_and_names_what_exists() -> None:
    """Eight minutes for all, two for what failed: the sum of the limits of the parts."""
    text = (ROOT / ".ci" / "cuda").read_text(encoding="utf-8")
    again, everything = (
        [int(seconds) for seconds in re.findall(r"^ +part \w+ (\d+) ", branch, re.MULTILINE)]
        for branch in text.partition("= again ]; then")[2].split("else\n")
    )
    assert sum(everything) <= 8 * 60
    assert sum(again) <= 2 * 60
    assert len(everything) == 4
    assert len(again) == 3
    assert (ROOT / "tests" / "cuda" / "summary.py").is_file()


JUNIT = """<testsuites><testsuite>
<testcase classname="a" name="test_a" time="0.5"/>
<testcase classname="a" name="test_b" time="1.5"><skipped message="no GPU"/></testcase>
<testcase classname="a" name="test_c" time="0.1"><failure message="it fails&#10;x"/></testcase>
<testcase classname="a" name="test_d" time="0.1"><error message="differs">
stored with torch 2.13.0, now running torch 2.11.0</error></testcase>
</testsuite></testsuites>"""


@pytest.mark.slow("imports torch in a new process")
def test_summary_of_the_cuda_script(tmp_path: Path) -> None:
    (tmp_path / "examples.xml").write_text(JUNIT)
    command = [sys.executable, ROOT / "tests" / "cuda" / "summary.py", tmp_path]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "| examples | 1 | 2 | 1 | 0 | test_b 1.5 s |" in lines
    assert lines.index("## failed: 1") < lines.index("- examples: `a::test_c`: it fails")
    apart = next(n for n, line in enumerate(lines) if "made with another release: 1" in line)
    assert lines[apart + 2] == "- examples: `a::test_d`: differs"


def test_portable_script_paths_exist() -> None:
    text = (ROOT / ".ci" / "portable").read_text(encoding="utf-8")
    named = re.findall(r"\btests/[\w/.]+", text)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_have_timeouts_and_few_permissions(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert "group" in workflow["concurrency"]
    for name, job in jobs(path).items():
        assert "timeout-minutes" in job or "uses" in job, name
        allowed = {"contents": "read"} if name != "publish" else {"id-token": "write"}
        assert job.get("permissions", {"contents": "read"}) == allowed, name
    text = path.read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "pull_request_target" not in text


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_release(path: Path) -> None:
    used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    assert used
    for name in used:
        assert re.search(r"@v\d+$|@release/v\d+$|:\d+\.\d+\.\d+$|^\./", name), name


def test_a_release_is_published_after_its_tests_only() -> None:
    release = jobs(ROOT / ".github" / "workflows" / "release.yml")
    assert set(release["publish"]["needs"]) == {"test", "build"}
    assert release["test"]["uses"] == "./.github/workflows/tests.yml"
    assert release["publish"]["environment"]  # an environment allows an approval


@pytest.mark.parametrize("name", ["wrong-graph", "failing-run"])
def test_issue_form_asks_for_a_reproduction(name: str) -> None:
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    required = {
        field["id"] for field in form["body"] if field.get("validations", {}).get("required")
    }
    assert required >= {"test", "versions"}


# -- the action ------------------------------------------------------------------------------------

GRAPH = """torchgraph 1
via aot, torch 2.13.0

forward {
  %x = input : f32[2, 4]
  %relu = aten.relu.default(%x) : f32[2, 4]
  return %relu
}
"""


def summarise(directory: Path, python: str = sys.executable) -> tuple[str, str]:
    """Return the action step's addition to the summary, and its output."""
    (step,) = (each for each in read(ACTION)["runs"]["steps"] if "run" in each)
    summary = directory / "summary.md"
    summary.write_text("of a step before\n", encoding="utf-8")
    environment = {
        **environment_with(write_script(directory / "bin")),
        "GITHUB_ACTION_PATH": str(ACTION.parent),
        "GITHUB_STEP_SUMMARY": str(summary),
        "ARTIFACTS": "torchgraph",
        "PYTHON": python,
    }
    assert step["env"].keys() == {"ARTIFACTS", "PYTHON"}
    done = subprocess.run(
        ["bash", "-c", step["run"]],
        cwd=directory,
        env=environment,
        capture_output=True,
        check=True,  # a failed step would hide the result of the tests
        text=True,
    )
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("of a step before\n")
    return text.partition("\n")[2], done.stdout


def artifacts(directory: Path, **graphs: tuple[str, str]) -> Path:
    made = directory / "torchgraph"
    made.mkdir()
    for name, (stored, captured) in graphs.items():
        (made / f"{name}.expected.tgraph").write_text(stored, encoding="utf-8")
        (made / f"{name}.received.tgraph").write_text(captured, encoding="utf-8")
    return made


@pytest.mark.slow("runs pytest several times")
def test_action_summary_lists_each_cause_once(tmp_path: Path) -> None:
    changed = GRAPH, GRAPH.replace("relu", "tanh")
    artifacts(tmp_path, one=changed, two=changed)
    text, printed = summarise(tmp_path)
    assert text.startswith("### Graphs that differ\n\n**")
    assert text.count("aten.relu -> aten.tanh") == 1
    assert "| 2: `one`, `two` |" in text
    assert printed == ""


SCALES = """
import pytest
import torch
from torch import nn

EDITED = False


class Scale(nn.Module):
    def forward(self, x):
        return x.tanh() if EDITED else x.relu()


@pytest.mark.parametrize("names", ["first second", "third"])
def test_scales(graph_capture, graph_snapshot, names):
    net = nn.Sequential()
    for name in names.split():
        net.add_module(name, Scale())
        net.add_module(f"{name}_fc", nn.Linear(4, 4))
    assert graph_capture(net, torch.ones(2, 4), via="dispatch") == graph_snapshot
"""


@pytest.mark.slow("runs pytest several times")
def test_action_summary_of_a_single_cause(tmp_path: Path) -> None:
    test = tmp_path / "test_scales.py"
    plugins = ("-p", "syrupy", "-p", "pytest_torchgraph.plugin", "-p", "no:cacheprovider")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    environment = {k: v for k, v in environment.items() if not k.startswith(("PYTEST_X", "GITHUB"))}
    command = [sys.executable, "-m", "pytest", *plugins]
    for edited, option in ((False, "update"), (True, "artifacts=torchgraph")):
        test.write_text(SCALES.replace("EDITED = False", f"EDITED = {edited}"), encoding="utf-8")
        done = subprocess.run(
            [*command, f"--torchgraph-{option}"], cwd=tmp_path, env=environment, check=False
        )
        assert done.returncode == edited
    text, printed = summarise(tmp_path)
    assert text.startswith("### Graphs that differ\n\n**1 cause in 2 stored graphs**")
    assert "aten.relu -> aten.tanh" in text
    assert printed == ""


@pytest.mark.slow("runs pytest in a new process")
def test_action_summary_with_an_unreadable_file_lists_causes(tmp_path: Path) -> None:
    artifacts(tmp_path, one=(GRAPH, GRAPH.replace("relu", "tanh")), two=(GRAPH, "no graph"))
    text, printed = summarise(tmp_path)
    assert "aten.relu -> aten.tanh" in text
    assert "cannot be read" in text
    assert printed.startswith("::warning title=torchgraph::")


@pytest.mark.slow("runs pytest in a new process")
def test_action_summary_that_is_too_long_is_a_file(tmp_path: Path) -> None:
    made = artifacts(tmp_path)
    notes = tmp_path / "notes"
    notes.write_text("mine")
    (made / "causes.md").symlink_to(notes)
    (tmp_path / "env").mkdir()
    for name in ("python", "pytest-torchgraph"):
        long = tmp_path / "env" / name
        long.write_text(
            "#!/bin/sh\necho '**many causes**'\nyes '| a row |' | head -n 200000\nexit 1\n"
        )
        long.chmod(0o755)
    text, _ = summarise(tmp_path, str(tmp_path / "env" / "python"))
    assert "**many causes**" in text
    assert "`causes.md` in the artifact" in text
    assert len(text) < 1000
    assert (made / "causes.md").read_text().count("| a row |") == 200_000
    assert notes.read_text() == "mine"


def test_action_summary_without_artifacts_is_unchanged(tmp_path: Path) -> None:
    text, printed = summarise(tmp_path)
    assert text == ""
    assert "no directory 'torchgraph'" in printed


@pytest.mark.slow("runs pytest in a new process")
def test_action_summary_without_failures_is_unchanged(tmp_path: Path) -> None:
    artifacts(tmp_path)
    (tmp_path / "torchgraph" / "test_x.svg").touch()
    text, _ = summarise(tmp_path)
    assert text == ""
