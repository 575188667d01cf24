"""Declarations of the command-line options, the ini values, and the marker `torchgraph`.

Every pytest run in the environment imports this module, so it only declares: `config` resolves the
options, and `limits` checks the arguments of the marker.
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
    f"{SIGNATURE}: watch what the test compiles, and fail the test if its graphs, graph breaks or "
    "recompiles exceed a limit, or if it has fewer than min_graphs graphs; None means no limit"
)

AUDIT_MODES = ("show", "record", "check")
"""Values of `--torchgraph-audit`."""

AUDIT_FILE = "torchgraph-audit.json"

RELEASES = "torchgraph_releases"
"""Ini value that lists the torch releases with stored graphs of their own."""

_DEVICES = "comma-separated device types for the graph_device fixture"
_ARTIFACTS = "directory for the pictures and texts of failed graph comparisons"
_REPORT = "HTML page of the captured graphs and their differences"
_SAVE_RUN = "directory for what each test compiled and captured, to compare with another run"
_JSON = "JSON file of what the tests compiled and of failed graph comparisons"

OPTIONS = {
    "update": "rewrite the stored graphs of the tests that run, but no snapshots of other plugins",
    "prune": "after a complete run without failures, remove stored graphs that no test compares",
    "devices": f"{_DEVICES} (default: {','.join(DEFAULT)}); a missing device is an error",
    "artifacts": f"{_ARTIFACTS} (default: in pytest's cache directory)",
    "report": f"{_REPORT} (default: none)",
    "json": f"{_JSON} (default: none)",
    "save_run": f"{_SAVE_RUN} (default: none)",
    "audit": "show: report what torch.compile does in all tests; record: store it as the baseline; "
    "check: fail the run if it is worse than the baseline. Test outcomes do not change",
}
"""Help texts of the options, by name without `--torchgraph-`."""

METAVARS = {
    "devices": "NAMES",
    "artifacts": "DIR",
    "report": "FILE",
    "json": "FILE",
    "save_run": "DIR",
}

INI_VALUES = {
    "audit_file": f"baseline file of --torchgraph-audit, relative to the ini file "
    f"(default: {AUDIT_FILE})",
    "audit_isolation": "on: --torchgraph-audit resets Dynamo before each test, so that the result "
    "does not depend on the test order; off (default): no reset",
    "report": f"{_REPORT}, relative to the ini file",
    "json": f"{_JSON}, relative to the ini file",
    "save_run": f"{_SAVE_RUN}, relative to the ini file",
    "save_run_isolation": "on (default): with --torchgraph-save-run, a test starts without code "
    "that other tests compiled, so that their order does not matter; off: no reset",
    "github": "auto (default): on GitHub Actions, an audit writes annotations and a step summary; "
    "off: it writes neither",
    "devices": f"{_DEVICES}; a missing device is skipped",
    "artifacts": f"{_ARTIFACTS}, relative to the ini file",
    "digits": "significant digits of float constants in stored graphs, from 0 (no values) to 17 "
    "(default: all digits)",
    "divergence": "time limit in seconds (default: 60) for a failed assert_matches_eager to search "
    "for the first op that differs; 0: no search",
    "isolation": "on (default): tests that use graphs start with a fresh compiler, and its "
    "settings are restored after each test; off: no isolation",
}
"""Help texts of the string ini values, by name without `torchgraph_`."""

DEFAULTS = {
    "audit_file": AUDIT_FILE,
    "audit_isolation": "off",
    "divergence": "60",
    "github": "auto",
    "isolation": "on",
    "save_run_isolation": "on",
}
"""Defaults of `INI_VALUES`; all others are ""."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the command-line options and the ini options."""
    group = parser.getgroup("torchgraph", "graphs of PyTorch models")
    for name, text in OPTIONS.items():
        if name in ("update", "prune"):
            arguments: dict[str, object] = {"action": "store_true", "default": False}
        elif name == "audit":
            arguments = {"choices": AUDIT_MODES, "default": None}
        else:
            arguments = {"metavar": METAVARS[name], "default": None}
        option = f"--torchgraph-{name.replace('_', '-')}"
        group.addoption(option, dest=f"torchgraph_{name}", help=text, **arguments)
    # An option of its own: with an optional value, `--torchgraph-prune tests` would read `tests` as
    # the value.
    group.addoption(
        "--torchgraph-prune=check",
        dest="torchgraph_prune",
        action="store_const",
        const="check",
        help="fail the run if there are such graphs, and remove nothing",
    )
    for name, text in INI_VALUES.items():
        parser.addini(f"torchgraph_{name}", text, default=DEFAULTS.get(name, ""))
    parser.addini(
        RELEASES,
        "torch releases that have stored graphs of their own, for example: 2.13 2.15. The first "
        "release uses NAME.tgraph. Every other release gets its own file, such as "
        "NAME@torch-2.15.tgraph, only if its graph differs",
        type="args",
        default=[],
    )
    for name in INI:
        parser.addini(
            f"torchgraph_{name}",
            f"the torchgraph marker's {name}, for every test whose own marker does not set it",
            type="linelist",
            default=[],
        )


def any_set(config: pytest.Config) -> bool:
    """Return True if an option or ini value is set and must be checked at startup.

    An ini value that is written with its default counts as not set.
    """
    inis = [*INI_VALUES, RELEASES.removeprefix(f"{MARKER}_"), *INI]
    return any(
        getattr(config.option, f"torchgraph_{name}") not in (None, False) for name in OPTIONS
    ) or any(
        (value := config.getini(f"torchgraph_{name}")) and value != DEFAULTS.get(name)
        for name in inis
    )
