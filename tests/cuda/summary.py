"""Print a summary of the JUnit files of `.ci/cuda`: `python tests/cuda/summary.py DIRECTORY`."""

from __future__ import annotations

import platform
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import torch
from deadline import OVER

OTHER_RELEASE = "stored graph differs, and was made with another release"


def kind_of(case: ET.Element) -> str:
    for kind in ("failure", "error", "skipped"):
        element = case.find(kind)
        if element is not None:
            return OVER if OVER in (element.get("message") or "") else kind
    return "passed"


def about() -> str:
    """Return the machine, in one line."""
    import transformers

    if not torch.cuda.is_available():
        device = "no GPU: a rehearsal"
    else:
        gpu = torch.cuda.get_device_properties(0)
        device = f"{gpu.name} ({gpu.total_memory // 2**30} GiB, sm_{gpu.major}{gpu.minor})"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return f"{device}; {versions}, Python {platform.python_version()}"


def main(directory: Path) -> None:
    print(f"# {about()}\n")
    print("| part | passed | failed | skipped | not run | slowest |\n|---|---|---|---|---|---|")
    lists: dict[str, list[str]] = {"failed": [], OTHER_RELEASE: []}
    for path in sorted(directory.glob("*.xml")):
        cases = [*ET.parse(path).iter("testcase")]
        kinds = Counter(map(kind_of, cases))
        slowest = max(cases, key=lambda case: float(case.get("time", 0)), default=None)
        time = "" if slowest is None else f"{slowest.get('name')} {slowest.get('time')} s"
        bad = kinds["failure"] + kinds["error"]
        counts = (kinds["passed"], bad, kinds["skipped"], kinds[OVER])
        print(f"| {path.stem} | {' | '.join(map(str, counts))} | {time} |")
        for case in cases:
            if kind_of(case) in ("failure", "error"):
                element = case.find(kind_of(case))
                assert element is not None
                text = f"{element.get('message')}\n{element.text}"
                line = f"- {path.stem}: `{case.get('classname')}::{case.get('name')}`"
                message = (element.get("message") or "").strip().splitlines()[:1]
                lists[OTHER_RELEASE if other_release(text) else "failed"].append(
                    f"{line}: {' '.join(message)[:200]}"
                )
    for title, lines in lists.items():
        if lines:
            print(f"\n## {title}: {len(lines)}\n")
            print("\n".join(lines))


def other_release(text: str) -> bool:
    """Return True for a stored graph that another release of torch or transformers wrote."""
    return "stored with torch" in text and "now running torch" in text


if __name__ == "__main__":
    main(Path(sys.argv[1]))
