"""`export FILE [NEW]`: write graphs, or two files and what corresponds in them, for a viewer."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import TorchGraphError
from .documents import read_document
from .exit_codes import SAME

if TYPE_CHECKING:
    from ..graph.model import Graph
    from ..render.model_explorer.panes import Pane

ADDRESS = "http://localhost:8080/"
"""Where model-explorer listens unless it is told another place."""


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "export",
        help="write graphs for model-explorer, of two files with what corresponds in them",
        description="Write the graphs of FILE for Google's model-explorer. With NEW, write those "
        "of both files side by side, and beside OUT.json a file OUT.mapping.json that says which "
        "nodes and layers correspond. Print the files, and the address that opens them while "
        "model-explorer runs.",
    )
    parser.add_argument(
        "--model-explorer",
        metavar="OUT.json",
        dest="out",
        type=Path,
        required=True,
        help="the file to write",
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument(
        "new", metavar="NEW", type=Path, nargs="?", help="what FILE is compared with"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the files, and print their paths.

    Raises:
        TorchGraphError: where there is no graph to write, or the path is none of a JSON file.
        OSError: for a file that cannot be read or written.
    """
    out: Path = options.out
    if out.suffix != ".json":
        raise TorchGraphError(f"{out}: model-explorer reads files named .json alone")
    files = [options.file] if options.new is None else [options.file, options.new]
    for file in files:
        if out.resolve() == file.resolve():
            raise TorchGraphError(f"{out} is the file to read: give another one to write")
    if options.new is None:
        from ..render.model_explorer.collection import collection
        from ..render.model_explorer.panes import Pane

        graphs, label = _graphs(options.file), options.file.name
        _write(out, [collection(graphs, label)])
        print(out, _address(out, (label, Pane(graphs[0].name))), sep="\n")
        return SAME
    from ..render.model_explorer.comparison import compare

    labels = _labels(options.file, options.new)
    compared = compare(_graphs(options.file), _graphs(options.new), labels)
    mapping = out.with_suffix(".mapping.json")
    _write(out, compared.collections)
    _write(mapping, compared.mapping)
    print(out, mapping, _address(out, *zip(labels, compared.panes, strict=False)), sep="\n")
    return SAME


def _graphs(file: Path) -> tuple[Graph, ...]:
    graphs = read_document(file).graphs
    if not graphs:
        raise TorchGraphError(f"{file} holds counts of ops alone, no graph to export")
    return graphs


def _labels(old: Path, new: Path) -> tuple[str, str]:
    """The names of two files, which differ."""
    if old.name != new.name:
        return old.name, new.name
    return f"old {old.name}", f"new {new.name}"


def _write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _address(out: Path, *panes: tuple[str, Pane]) -> str:
    """The address under which model-explorer opens a file; two graphs side by side and in step.

    Args:
        out: the file.
        panes: for each pane the name of its collection, and what it shows.
    """
    data: dict[str, Any] = {"models": [{"url": str(out.resolve())}]}
    if panes:
        data["uiState"] = {
            "paneStates": [
                {
                    "selectedCollectionLabel": f"{out.name} ({label})",
                    "selectedGraphId": pane.graph,
                    "selectedNodeId": pane.node,
                    "deepestExpandedGroupNodeIds": [pane.layer] if pane.layer else [],
                    "widthFraction": 1 / len(panes),
                    "selected": number == 0,
                }
                for number, (label, pane) in enumerate(panes)
            ]
        }
    if len(panes) > 1:
        data["sync"] = {"mode": "match_node_id"}
    return f"{ADDRESS}?data={quote(json.dumps(data))}"
