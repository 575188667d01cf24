"""Compares two saved runs, writes the job summary, and keeps one comment on the pull request.

What is in the directory of the runs comes from a job that ran the pull request's code: it is never
markup here. Where GitHub refuses the comment, as for a pull request of a fork, the summary says so.
This step does not fail.
"""

from __future__ import annotations

import io
import json
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stdout
from http.client import HTTPException
from pathlib import Path
from typing import Any

from pytest_torchgraph.cli import main as command

RUNS = Path(os.environ["RUNS"])
MARKER = f"<!-- torchgraph-{os.environ['NAME']} -->"
NO_RUN = (
    "**Nothing was compared: the {side} saved no run.** It does not have pytest-torchgraph yet, or "
    "pytest did not start there."
)
REFUSED = "the token may not write it, as in a pull request of a fork"


def said_first() -> Iterator[str]:
    """Yield what to know before the causes."""
    for side in ("base", "head"):
        if not (RUNS / side / "run.json").is_file():
            yield NO_RUN.format(side=side)
    changed = RUNS / "dependencies"
    if changed.is_file() and not changed.is_symlink():
        lines = changed.read_text("utf-8", "replace")[:10_000].splitlines()
        names = [f"`{line}`" for line in lines if re.fullmatch(r"[\w./+-]{1,60}", line, re.ASCII)]
        if names:
            names[10:] = ["others"] * (len(names) > 10)
            yield (
                f"Changed with the dependencies, or where they are: {', '.join(names)}. Unless the "
                "command installs them, both runs had the same packages."
            )


def compare() -> tuple[int, str]:
    """Return the exit status of `diff`, and a text in Markdown."""
    first = [*said_first()]
    status, out = 2, io.StringIO()
    if not any(note.startswith("**") for note in first):
        with redirect_stdout(out):
            runs = [str(RUNS / side) for side in ("base", "head")]
            status = command(["diff", *runs, "--format=markdown"])
        if not out.getvalue():
            first.insert(0, "**Nothing was compared: a saved run is damaged.** See the log.")
    return status, "\n\n".join(["### What this changes in the graphs", *first, out.getvalue()])


def api(method: str, path: str, data: object = None) -> Any:
    """Return the answer of GitHub to a request about this repository."""
    environment = os.environ
    request = urllib.request.Request(
        f"{environment['GITHUB_API_URL']}/repos/{environment['GITHUB_REPOSITORY']}/{path}",
        None if data is None else json.dumps(data).encode(),
        {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {environment['TOKEN']}",
            "Content-Type": "application/json",
            "User-Agent": "pytest-torchgraph",
        },
        method=method,
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def pull_request() -> tuple[int, str] | None:
    """Return the number of the pull request, and its newest commit; `None` if there is none.

    After a `workflow_run`, the event has no number for a pull request of a fork. A number that the
    other job writes down is one that the pull request's author can choose.
    """
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
    if "pull_request" in event:
        return event["pull_request"]["number"], event["pull_request"]["head"]["sha"]
    run = event.get("workflow_run") or {}
    if not run.get("head_repository"):
        return None
    head = f"{run['head_repository']['owner']['login']}:{run['head_branch']}"
    pulls = api("GET", f"pulls?state=open&head={urllib.parse.quote(head)}")
    numbers = [pull["number"] for pull in pulls if pull["head"]["sha"] == run["head_sha"]]
    return (numbers[0], run["head_sha"]) if len(numbers) == 1 else None


def comment(text: str) -> str:
    """Write the comment, or replace it; return why there is none, or ""."""
    found = pull_request()
    if found is None:
        return "there is no open pull request with this commit, or more than one"
    number, commit = found
    data = {"body": f"{MARKER}\n{text}\n\n<sub>{commit[:10]}</sub>"}
    page = 1
    while comments := api("GET", f"issues/{number}/comments?per_page=100&page={page}"):
        for each in comments:
            # A stranger can write the marker into a comment of theirs, and edit it afterwards.
            is_bot = (each.get("user") or {}).get("type") == "Bot"
            if is_bot and (each.get("body") or "").startswith(MARKER):
                api("PATCH", f"issues/comments/{each['id']}", data)
                return ""
        page += 1
    api("POST", f"issues/{number}/comments", data)
    return ""


def append(variable: str, text: str) -> None:
    """Append to a file that GitHub names in the environment."""
    with open(os.environ[variable], "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def main() -> None:
    """Compare, and say it."""
    status, text = compare()
    append("GITHUB_OUTPUT", f"status={status}")
    append("GITHUB_STEP_SUMMARY", text)
    if status == 2:
        print("::warning title=torchgraph::nothing or only a part was compared, see the summary")
    if not os.environ["TOKEN"]:
        return
    try:
        problem = comment(text)
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        code = getattr(error, "code", 0)
        problem = REFUSED if code in (401, 403, 404) else type(error).__name__
        problem += f" ({code})" if code else ""
    if problem:
        append("GITHUB_STEP_SUMMARY", f"\nNo comment was written: {problem}.")
        print(f"::notice title=torchgraph::no comment was written: {problem}")


main()
