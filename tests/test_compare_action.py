"""The steps of `action/compare`, run as processes in an emptied environment.

GitHub is simulated: a server in this process answers with comments and pull requests as GitHub's
API does. The suite is a script that writes a saved run without torch; one test runs a real suite.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pytest_torchgraph import GraphBreak
from pytest_torchgraph.runs import RunInfo, RunWriter, SavedRecord

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
ACTION = ROOT / "action" / "compare"
PYTHON = shlex.quote(sys.executable)
MARKER = "<!-- torchgraph-runs -->"
HEAD = "c0ffee" * 6 + "1234"
PULL = {"pull_request": {"number": 7, "head": {"sha": HEAD}}}
FORK = {
    "workflow_run": {
        "head_sha": HEAD,
        "head_branch": "edit/relu",
        "head_repository": {"owner": {"login": "stranger"}},
    }
}
SUITE = """
import os, shlex
from pathlib import Path

from pytest_torchgraph.graph import Graph, Header, Program
from pytest_torchgraph.runs import RunInfo, RunWriter, SavedRecord

[option] = shlex.split(os.environ["PYTEST_ADDOPTS"])
op = Path("op.txt").read_text().strip()
if op == "no plugin":
    raise SystemExit("error: unrecognized arguments: " + option)
text = f"torchgraph 1\\nvia aot, torch 2.13.0\\n\\nforward {{\\n  %x = input : f32[2]\\n"
text += f"  %y = aten.{op}.default(%x) : f32[2]\\n  return %y\\n}}\\n"
info = RunInfo(op, "2.13.0")
writer = RunWriter(Path(option.partition("=")[2]), info)
writer.prepare()
key = writer.write_graphs(Program(Header("aot", "2.13.0"), (Graph.from_text(text),)))
writer.write_record("test_net.py::test_<!-- torchgraph-runs -->@someone",
                    SavedRecord("passed", compiles=True, graphs=key))
writer.write_info(RunInfo(op, "2.13.0", complete=True))
raise SystemExit(1)  # a failed test does not end the step
"""


@dataclass
class GitHub:
    """A simulated GitHub: comments of pull request 7, and what was asked."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    address: str = ""

    def answer(self, method: str, address: str, data: Any) -> Any:
        self.asked.append((method, address))
        url = urlsplit(address)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = url.path.removeprefix("/repos/me/net/")
        if (method, path) == ("GET", "pulls"):
            return self.pulls if query["head"] == "stranger:edit/relu" else []
        if (method, path) == ("GET", "issues/7/comments"):
            size, page = int(query["per_page"]), int(query["page"])
            return self.comments[size * (page - 1) : size * page]
        if (method, path) == ("POST", "issues/7/comments"):
            self.comments.append({"id": 1000, "user": {"type": "Bot"}, **data})
            return self.comments[-1]
        [comment] = [c for c in self.comments if path == f"issues/comments/{c['id']}"]
        assert method == "PATCH"
        comment.update(data)
        return comment

    @property
    def bodies(self) -> list[str]:
        return [comment["body"] for comment in self.comments if comment["user"]["type"] == "Bot"]


@pytest.fixture
def github() -> Iterator[GitHub]:
    github = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            github.tokens.add(self.headers["Authorization"])
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            answer = github.answer(self.command, self.path, json.loads(body or "null"))
            self.send_response(github.status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = do_PATCH = do

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        github.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield github
        server.shutdown()
        thread.join()


@dataclass
class Job:
    """A job on a simulated runner, with a checkout in `net` and its steps' environment."""

    path: Path
    github: GitHub

    @property
    def runs(self) -> Path:
        return self.path / "temp" / "torchgraph-runs"

    def git(self, *args: str) -> str:
        name = ("-c", "user.name=me", "-c", "user.email=me@example.com")
        command = ["git", *name, "-c", "commit.gpgsign=false", *args]
        done = subprocess.run(command, cwd=self.path / "net", check=True, capture_output=True)
        return done.stdout.decode().strip()

    def commit(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.path / "net" / name).write_text(text, encoding="utf-8")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "change")

    def use(
        self, event: dict[str, Any] = PULL, *, succeeds: bool = True, **inputs: str
    ) -> tuple[str, str]:
        """Run the steps of the action, and return the summary and the log."""
        action = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
        values = {name: data["default"] for name, data in action["inputs"].items()}
        values |= {"command": f"{PYTHON} suite.py", "python": sys.executable, **inputs}
        assert values.keys() == action["inputs"].keys()
        names = {f"inputs.{name}": value for name, value in values.items()}
        names["runner.temp"] = str(self.path / "temp")
        files = {name: self.path / name for name in ("summary", "output", "event")}
        for name in ("summary", "output"):
            files[name].write_text("of a step before\n")
        files["event"].write_text(json.dumps(event))
        log = ""
        for step in action["runs"]["steps"]:
            assert step["shell"] == "bash"
            if step.get("if") == "${{ inputs.command != '' }}" and not values["command"]:
                continue
            environment = {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "GITHUB_ACTION_PATH": str(ACTION),
                "GITHUB_API_URL": self.github.address,
                "GITHUB_EVENT_PATH": str(files["event"]),
                "GITHUB_OUTPUT": str(files["output"]),
                "GITHUB_REPOSITORY": "me/net",
                "GITHUB_STEP_SUMMARY": str(files["summary"]),
            }
            for name, value in step["env"].items():
                environment[name] = re.sub(
                    r"\$\{\{ (\S+) \}\}", lambda match: names[match[1]], value
                )
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.path / "net",
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            log += done.stdout + done.stderr
            assert (done.returncode == 0) == succeeds, log
            if not succeeds:
                break
        summary = files["summary"].read_text(encoding="utf-8")
        assert summary.startswith("of a step before\n")
        self.status = files["output"].read_text().partition("status=")[2].strip()
        return summary.partition("\n")[2], log


def with_checkout(path: Path, github: GitHub) -> Job:
    """Return a job whose checkout has the edit of a pull request."""
    job = Job(path, github)
    for name in ("net", "temp"):
        (path / name).mkdir()
    job.git("init", "-q", "-b", "main")
    job.commit({"suite.py": SUITE, "op.txt": "relu"})
    job.commit({"op.txt": "gelu"})
    return job


@pytest.fixture
def job(tmp_path: Path, github: GitHub) -> Job:
    return with_checkout(tmp_path, github)


def other(number: int, body: str = "LGTM", kind: str = "User") -> dict[str, Any]:
    return {"id": number, "body": body, "user": {"type": kind}}


def test_comment_is_created_and_then_replaced(job: Job, github: GitHub) -> None:
    summary, _ = job.use(token="secret")
    assert "**1 cause in 1 of 1 test**" in summary
    assert "aten.relu -&gt; aten.gelu" in summary or "aten.relu -> aten.gelu" in summary
    assert "No comment" not in summary
    [body] = github.bodies
    assert body.startswith(f"{MARKER}\n### What this changes in the graphs\n")
    assert summary.strip() in body
    assert HEAD[:10] in body
    assert job.status == "1"
    assert github.tokens == {"Bearer secret"}
    job.commit({"op.txt": "relu"})
    summary, _ = job.use(token="secret", base="HEAD^1^1")
    [body] = github.bodies
    assert "**no difference in 1 test**" in body
    assert job.status == "0"


@pytest.mark.slow("runs git and two suites")
def test_the_checkout_is_afterwards_as_it_was(job: Job, github: GitHub) -> None:
    summary, _ = job.use()
    assert "**1 cause in 1 of 1 test**" in summary
    assert github.asked == [], "there is no token"
    assert (job.path / "net" / "op.txt").read_text() == "gelu"
    assert job.git("symbolic-ref", "--short", "HEAD") == "main"
    job.git("checkout", "-q", "--detach")
    head = job.git("rev-parse", "HEAD")
    job.use()
    assert job.git("rev-parse", "HEAD") == head


def test_comment_is_found_on_the_second_page(job: Job, github: GitHub) -> None:
    of_a_stranger = other(2, f"{MARKER}\nno difference")
    quoted = other(3, f"> {MARKER}", "Bot")
    github.comments = [
        of_a_stranger,
        quoted,
        *map(other, range(4, 140)),
        other(999, f"{MARKER}\nold", "Bot"),
        {"id": 1, "body": None, "user": None},
    ]
    job.use(token="secret")
    assert github.asked[-1] == ("PATCH", "/repos/me/net/issues/comments/999")
    assert "1 cause" in github.comments[-2]["body"]
    assert of_a_stranger["body"].endswith("no difference")
    assert len(github.comments) == 140


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "the token may not write it, as in a pull request of a fork (403)"),
        (404, "the token may not write it, as in a pull request of a fork (404)"),
        (502, "HTTPError (502)"),
    ],
)
@pytest.mark.slow("further answers", unless=["403-*"])
def test_refused_comment_leaves_the_summary(
    job: Job, github: GitHub, status: int, words: str
) -> None:
    github.status = status
    summary, log = job.use(token="secret")
    assert "**1 cause in 1 of 1 test**" in summary
    assert summary.endswith(f"\nNo comment was written: {words}.\n")
    assert f"::notice title=torchgraph::no comment was written: {words}\n" in log


def test_no_connection_leaves_the_summary(job: Job, github: GitHub) -> None:
    github.address = "http://127.0.0.1:1"
    summary, _ = job.use(token="secret")
    assert "**1 cause in 1 of 1 test**" in summary
    assert "No comment was written: URLError" in summary


@pytest.mark.parametrize("side", ["base", "head"])
@pytest.mark.slow("the other side", unless=["base"])
def test_a_side_without_the_plugin_is_said_first(job: Job, github: GitHub, side: str) -> None:
    job.commit({"op.txt": "no plugin"})
    if side == "base":
        job.commit({"op.txt": "relu"})
    summary, log = job.use(token="secret")
    for text in (summary, *github.bodies):
        assert f"\n**Nothing was compared: the {side} saved no run.** It does not have" in text
    assert f"the tests of the {side} ended with status 1" in log
    assert "::warning title=torchgraph::nothing" in log
    assert len(github.bodies) == 1
    assert job.status == "2"


def test_changed_dependencies_are_said_first(job: Job) -> None:
    job.commit({"pyproject.toml": "", "requirements-test.txt": "", "uv.lock": "", "notes.txt": ""})
    summary, _ = job.use()
    names = "`pyproject.toml`, `requirements-test.txt`, `uv.lock`. Unless"
    assert names in summary
    assert summary.index(names) < summary.index("**no difference")


def test_missing_base_fails_and_says_how_to_check_out(job: Job) -> None:
    _, log = job.use(base="HEAD^9", succeeds=False)
    assert "::error title=torchgraph::there is no HEAD^9: check out with fetch-depth: 2" in log


# -- runs of another job, which ran a stranger's code ----------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = with_checkout(tmp_path_factory.mktemp("job"), GitHub())
    job.use()
    return job.runs


@pytest.fixture
def downloaded(tmp_path: Path, github: GitHub, runs: Path) -> Job:
    """Return a job without a checkout, with the runs of another job."""
    job = Job(tmp_path, github)
    (tmp_path / "net").mkdir()
    shutil.copytree(runs, job.runs)
    return job


def pull(number: int, sha: str = HEAD) -> dict[str, Any]:
    return {"number": number, "head": {"sha": sha}}


@pytest.mark.parametrize(
    ("pulls", "comments"),
    [
        ([pull(7)], 1),
        ([pull(6, "newer"), pull(7)], 1),
        ([], 0),
        ([pull(7, "newer")], 0),
        ([pull(6), pull(7)], 0),
    ],
)
@pytest.mark.slow("further pull requests", unless=["pulls0-1", "pulls3-0"])
def test_workflow_run_finds_the_pull_request_of_a_fork(
    downloaded: Job, github: GitHub, pulls: list[dict[str, Any]], comments: int
) -> None:
    github.pulls = pulls
    summary, _ = downloaded.use(FORK, command="", token="secret")
    assert "**1 cause in 1 of 1 test**" in summary
    assert len(github.bodies) == comments
    assert ("No comment was written: there is no open" in summary) == (not comments)


def test_other_events_have_a_summary_only(downloaded: Job, github: GitHub) -> None:
    for event in ({}, {"workflow_run": {"head_repository": None}}):
        summary, _ = downloaded.use(event, command="", token="secret")
        assert "No comment was written: there is no open pull request" in summary
    assert github.asked == []


def test_texts_of_a_run_are_no_markup_in_a_comment(downloaded: Job, github: GitHub) -> None:
    (downloaded.runs / "dependencies").write_text("a`@someone\n<!-- x -->\nsetup.py\n::error::x\n")
    downloaded.use(command="", token="secret")
    [body] = github.bodies
    assert body.count("<!--") == 1
    assert "@someone" not in body
    assert "are: `setup.py`. Unless" in body


def test_links_of_a_stranger_are_not_read(downloaded: Job, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password")
    names = downloaded.runs / "dependencies"
    names.unlink()
    names.symlink_to(tmp_path / "secret")
    summary, _ = downloaded.use(command="")
    assert "password" not in summary


def test_damaged_run_is_said_first(downloaded: Job) -> None:
    (downloaded.runs / "head" / "run.json").write_text("<b>::error::x</b>")
    summary, log = downloaded.use(command="")
    assert "\n**Nothing was compared: a saved run is damaged.** See the log." in summary
    assert "<b>" not in summary
    assert "\n::error" not in log
    assert downloaded.status == "2"


@pytest.mark.slow("a long difference")
def test_long_difference_fits_into_a_comment(downloaded: Job, github: GitHub) -> None:
    for side in ("base", "head"):
        info = RunInfo(side, "2.13.0", complete=True)
        writer = RunWriter(downloaded.runs / side, info)
        writer.prepare()
        for number in range(800):
            kind = f"{number} " * 20
            cut = GraphBreak(kind, "why", "", f"m{number}.py", 3, "if x:", "f", (), "", "")
            record = SavedRecord("passed", compiles=True, breaks=(cut,) * (side == "head"))
            writer.write_record(f"test_{number}", record)
        writer.write_info(info)
    names = [f"requirements/{'x' * 40}{number}.txt" for number in range(30)]
    (downloaded.runs / "dependencies").write_text("\n".join(names))
    downloaded.use(command="", token="secret")
    [body] = github.bodies
    assert 50_000 < len(body) <= 65_536
    assert "more causes in" in body


@pytest.mark.slow("runs pytest with torch twice")
def test_action_on_a_suite(job: Job) -> None:
    test = (
        "import torch\n\ndef test_f():\n"
        "    torch.compile(lambda x: x.relu() * 2, backend='eager')(torch.ones(2))\n"
    )
    job.commit({"test_f.py": test})
    job.commit({"test_f.py": test.replace("relu", "sigmoid")})
    plugins = "-p pytest_torchgraph.plugin -p no:cacheprovider"
    variables = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"
    command = f"{variables} {PYTHON} -m pytest {plugins} test_f.py"
    summary, log = job.use(command=command)
    assert "**1 cause in 1 of 1 test**" in summary, log
    assert "test_f.py:4" in summary
