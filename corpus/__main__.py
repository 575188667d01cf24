"""Try the package with every model of the corpus: `python -m corpus [options]`.

Each measurement runs in a process of its own, forked from one that has imported the libraries, and
each starts from the same state. Results are kept as they come, in `.corpus/results.jsonl`; what is
there already is not measured again. `--table` makes `docs/measured/corpus.md` of them.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import gc
import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import torch

from . import case, measure, table
from .forks import forked

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "numpy",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "transformers.modeling_utils",
    "diffusers.models.modeling_utils",
    "torch_geometric.nn",
    "timm",
)
MODELS = (
    "hand",
    "border",
    "nn",
    "geometric",
    "vision",
    "diffusion",
    "text",
    "seeing",
    "hearing",
    "other",
)


def look(name: str, via: str, timeout: float, logs: Path) -> dict[str, Any]:
    """One result: the capture of a model, and whether the account says the same."""
    log = logs / f"{name}.{via}.log"
    log.unlink(missing_ok=True)
    theirs = forked(lambda: measure.account(name, via), timeout, log)
    ours = forked(lambda: measure.captured(name, via), timeout, log)
    found = {"name": name, "group": case.CORPUS[name].group, "via": via, "account": theirs, **ours}
    found["differs"] = None
    if "counts" in theirs and "counts" in ours:
        found["differs"] = measure.compare(via, ours, theirs)
    if via == "aot" and found.get("wrong") and "counts" in theirs:
        eager = forked(lambda: measure.account(name, "dispatch"), timeout, log)
        if "sums" in eager and not measure.computes_the_same(theirs, eager):
            found["as_torch"], found["wrong"] = found["wrong"], []
    return found


def brief(found: dict[str, Any]) -> str:
    """A line about a result."""
    account = found["account"]
    says = "captured"
    for key in ("broken", "crashed", "refused"):
        if key in found:
            says = f"{key}: {found[key].strip().partition(chr(10))[0]}"
    if "broken" in account:
        says += f"; BROKEN: {account['broken'].strip().partition(chr(10))[0]}"
    if found["differs"]:
        says += f"; DIFFERS: {'; '.join(found['differs'])}"
    if found.get("wrong"):
        says += f"; WRONG: {'; '.join(found['wrong'])}"
    seconds = f"{account.get('seconds', 0):.1f}s {found.get('seconds', 0):.1f}s"
    return f"{found['name']} {found['via']} {seconds} {says[:600]}"


def arguments() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(prog="python -m corpus", description=__doc__)
    parser.add_argument("--part", default="1/1", help="the second of six parts: 2/6")
    parser.add_argument("--only", action="append", default=[], help="a name, or a glob")
    parser.add_argument("--group", action="append", default=[], help="a library")
    parser.add_argument("--via", default=",".join(measure.VIAS))
    parser.add_argument("--again", action="store_true", help="measure what is there already")
    parser.add_argument("--failed", action="store_true", help="only what is not as it should be")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one run")
    parser.add_argument("--results", type=Path, default=ROOT / ".corpus" / "results.jsonl")
    parser.add_argument("--table", action="store_true", help="only write docs/measured/corpus.md")
    parser.add_argument("--list", action="store_true", help="only list the models")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    for module in MODELS:
        importlib.import_module(f"corpus.models.{module}")
    if options.list:
        print("\n".join(f"{entry.group}\t{entry.name}" for entry in case.CORPUS.values()))
        return
    known = table.read(options.results)
    if options.table:
        keys = [(name, via) for name in case.CORPUS for via in measure.VIAS]
        results = {key: known[key] for key in keys if key in known}
        (ROOT / "docs" / "measured" / "corpus.md").write_text(table.text(results))
        return
    part, parts = map(int, options.part.split("/"))
    names = [
        entry.name
        for entry in case.CORPUS.values()
        if (not options.only or any(fnmatch.fnmatch(entry.name, each) for each in options.only))
        and (not options.group or entry.group in options.group)
    ]
    logs = options.results.parent / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # a fork has none of the threads of the process that it is from
    warnings.simplefilter("ignore")
    with contextlib.suppress(ImportError):
        case.torchvision()  # before those that import it
    for library in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    gc.collect()
    gc.freeze()  # or else each fork would copy what its collector looks at
    for name in names[part - 1 :: parts]:
        with contextlib.suppress(Exception):  # it will be raised again where it is reported
            case.CORPUS[name].imports()
        for via in options.via.split(","):
            last = known.get((name, via))
            done = last is not None and (table.good(last) or not options.failed)
            if done and not (options.again or options.only):
                continue
            found = look(name, via, options.timeout, logs)
            print(brief(found), flush=True)
            with options.results.open("a") as stream:
                stream.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
