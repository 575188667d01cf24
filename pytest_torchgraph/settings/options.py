"""Declarations of the command-line options, the ini values, and the marker `torchgraph`.

Every pytest run in the environment imports this module, so it holds nothing else: `config` resolves
the options, `limits` checks the arguments of the marker.
"""

from __future__ import annotations

import pytest

from ..device_types import DEFAULT

MARKER = "torchgraph"
"""Name of the marker, and prefix of the ini options."""

NAMES = ("min_graphs", "max_graphs", "max_graph_breaks", "max_recompiles", "within", "allow")
"""Arguments of the marker."""

INI = NAMES[1:]
"""Arguments that are also ini options, prefixed with `torchgraph_`."""

SIGNATURE = (
    "torchgraph(min_graphs=1, max_graphs=None, max_graph_breaks=0, max_recompiles=0, within=None, "
    "allow=())"
)
DESCRIPTION = (
    f"{SIGNATURE}: watch what the test compiles, and fail it where there are fewer or more graphs, "
    "graph breaks or recompilations; None is no limit"
)

AUDIT_MODES = ("show", "record", "check")
"""Values of `--torchgraph-audit`."""

AUDIT_FILE = "torchgraph-audit.json"

RELEASES = "torchgraph_releases"
"""Ini value that lists the torch releases with stored graphs of their own."""

_DEVICES = "devices that graph_device gives, separated by commas"
_ARTIFACTS = "directory for the pictures and texts of failed graph comparisons"
_REPORT = "HTML file for a page with what tests captured and what differs"
_JSON = "JSON file for what the tests compiled and which comparisons of graphs failed"

OPTIONS = {
    "update": "store the graphs of the tests that run anew, and touch no other plugin's snapshots",
    "prune": "remove stored graphs that no test compares, after a complete and green run",
    "devices": f"{_DEVICES} (default: {','.join(DEFAULT)}); one that is absent is an error",
    "artifacts": f"{_ARTIFACTS} (default: in pytest's cache directory)",
    "report": f"{_REPORT} (default: none)",
    "json": f"{_JSON} (default: none)",
    "audit": "show: say what torch.compile did in the tests, whatever they are; record: store it; "
    "check: fail the run where it became worse. Outcomes of tests do not change",
}
"""Help texts of the options, by name without `--torchgraph-`."""

METAVARS = {"devices": "NAMES", "artifacts": "DIR", "report": "FILE", "json": "FILE"}

INI_VALUES = {
    "audit_file": f"the file that --torchgraph-audit records and checks, relative to this file "
    f"(default: {AUDIT_FILE})",
    "audit_isolation": "on: --torchgraph-audit resets Dynamo before each test, so that what a test "
    "compiles does not depend on the tests before it; off (the default): it resets nothing",
    "report": f"{_REPORT}, relative to this file",
    "json": f"{_JSON}, relative to this file",
    "github": "auto (the default): an audit on GitHub Actions ends with annotations and a step "
    "summary; off: it does not",
    "devices": f"{_DEVICES}; one that is absent is skipped",
    "artifacts": f"{_ARTIFACTS}, relative to this file",
    "digits": "how many significant digits of float constants stored graphs have, 0 to 17: 0 for "
    "none; not set: all",
    "divergence": "seconds (default: 60) that a failed assert_matches_eager may take to find the "
    "first op that differs; 0: it does not look for it",
    "isolation": "on (the default): tests that use graphs begin with a fresh compiler, and its "
    "settings are put back after them; off: they do not",
}
"""Help texts of the string ini values, by name without `torchgraph_`."""

DEFAULTS = {
    "audit_file": AUDIT_FILE,
    "audit_isolation": "off",
    "divergence": "60",
    "github": "auto",
    "isolation": "on",
}
"""Defaults of `INI_VALUES`; all others are ""."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the command-line options and the ini options."""
    group = parser.getgroup("torchgraph", "graphs of PyTorch models")
    for name, text in OPTIONS.items():
        if name in ("update", "prune"):
            how: dict[str, object] = {"action": "store_true", "default": False}
        elif name == "audit":
            how = {"choices": AUDIT_MODES, "default": None}
        else:
            how = {"metavar": METAVARS[name], "default": None}
        group.addoption(f"--torchgraph-{name}", dest=f"torchgraph_{name}", help=text, **how)
    for name, text in INI_VALUES.items():
        parser.addini(f"torchgraph_{name}", text, default=DEFAULTS.get(name, ""))
    parser.addini(
        RELEASES,
        "releases of torch with stored graphs of their own, as in 2.13 2.15: the first owns "
        "NAME.tgraph, another one has NAME@torch-2.15.tgraph where its graph differs",
        type="args",
        default=[],
    )
    for name in INI:
        parser.addini(
            f"torchgraph_{name}",
            f"{name} for every test, and what a marker torchgraph does not say itself",
            type="linelist",
            default=[],
        )


def any_set(config: pytest.Config) -> bool:
    """Return True if an option or ini value is set and must be checked at startup."""
    inis = [*INI_VALUES, RELEASES.removeprefix(f"{MARKER}_"), *INI]
    return any(
        getattr(config.option, f"torchgraph_{name}") not in (None, False) for name in OPTIONS
    ) or any(
        (value := config.getini(f"torchgraph_{name}")) and value != DEFAULTS.get(name)
        for name in inis
    )
