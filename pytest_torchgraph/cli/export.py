"""`export FILE [NEW]`: write the graphs of one file, or of two matched files, for a viewer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import TorchGraphError, only_counts_error
from .formats import EXIT_OK, read_document

if TYPE_CHECKING:
    from ..graph.model import Graph
    from ..render.model_explorer import Pane

ADDRESS = "http://localhost:8080/"
"""Default address of model-explorer."""


def add_command(commands: Any) -> None:
    """Declare the command and its arguments.

    Args:
        commands: the subparsers of argparse.
    """
    parser = commands.add_parser(
        "export",
        help="write graphs for model-explorer; for two files, also the corresponding nodes",
        description="Write the graphs of FILE for Google's model-explorer. With NEW, write the "
        "graphs of both files side by side, and the corresponding nodes and layers to "
        "OUT.mapping.json. Print the paths of the files, and the URL that opens them while "
        "model-explorer runs.",
    )
    parser.add_argument(
        "--model-explorer",
        metavar="OUT.json",
        dest="out",
        type=Path,
        required=True,
        help="output file",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a .tgraph file")
    parser.add_argument(
        "new", metavar="NEW", type=Path, nargs="?", help="file to compare with FILE"
    )
    parser.add_argument(
        "--heat",
        choices=("flops", "saved_bytes"),
        help="only for one file: also write the cost of each node as node data. The choice flops "
        "imports torch, for its FLOP formulas",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the files, and print their paths.

    Raises:
        TorchGraphError: if there is no graph to write, if the path is not a JSON file or cannot be
            written, and for a heat map of a difference or of unknown costs.
        OSError: for a file that cannot be read.
    """
    from ..snapshot.files import write_text

    output: Path = options.out
    if output.suffix != ".json":
        raise TorchGraphError(
            f"{output}: model-explorer reads only .json files: choose a name that ends in .json"
        )
    if options.new is not None and options.heat:
        raise TorchGraphError("--heat applies to one file, not to a diff: leave out --heat or NEW")
    files, address = _export_one(options) if options.new is None else _export_pair(options)
    input_files = {file.resolve() for file in (options.file, options.new) if file is not None}
    for path in files:
        if path.resolve() in input_files:
            raise TorchGraphError(f"{path} is an input file: choose another output file")
    for path, data in files.items():
        write_text(path, json.dumps(data, indent=1) + "\n")
    print(*files, address, sep="\n")
    return EXIT_OK


def _export_one(options: argparse.Namespace) -> tuple[dict[Path, Any], str]:
    """Return the files to write for one input file, and the address that opens them."""
    from ..render.model_explorer import Pane, graph_collection, node_data

    output: Path = options.out
    graphs, label = _graphs(options.file), options.file.name
    files: dict[Path, Any] = {output: [graph_collection(graphs, label)]}
    if options.heat:
        files[output.with_suffix(f".{options.heat}.json")] = node_data(graphs, options.heat)
    return files, _address([*files], (label, Pane(graphs[0].name)))


def _export_pair(options: argparse.Namespace) -> tuple[dict[Path, Any], str]:
    """Return the files to write for two inputs, and the address that opens them side by side."""
    from ..render.model_explorer import compare

    output: Path = options.out
    labels = _labels(options.file, options.new)
    compared = compare(_graphs(options.file), _graphs(options.new), labels)
    files = {output: compared.collections, output.with_suffix(".mapping.json"): compared.mapping}
    return files, _address([output], *zip(labels, compared.panes, strict=False))


def _graphs(file: Path) -> tuple[Graph, ...]:
    graphs = read_document(file).graphs
    if not graphs:
        raise only_counts_error(file)
    return graphs


def _labels(old: Path, new: Path) -> tuple[str, str]:
    """Return distinct labels for two files."""
    if old.name != new.name:
        return old.name, new.name
    return f"old {old.name}", f"new {new.name}"


def _address(files: Sequence[Path], *panes: tuple[str, Pane]) -> str:
    """Return the model-explorer address of a file; two graphs open side by side and in sync.

    Args:
        files: the file with the graphs, followed by files with node data.
        panes: for each pane, the name of its collection, and its content.
    """
    graphs_file, *node_data = files
    data: dict[str, Any] = {"models": [{"url": str(graphs_file.resolve())}]}
    if node_data:
        data["nodeData"] = [str(path.resolve()) for path in node_data]
        data["nodeDataTargets"] = ["" for _ in node_data]
    if panes:
        data["uiState"] = {
            "paneStates": [
                {
                    "selectedCollectionLabel": f"{graphs_file.name} ({label})",
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
