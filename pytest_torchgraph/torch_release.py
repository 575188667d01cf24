"""The installed torch release and its minimum version. Nothing here imports torch."""

from __future__ import annotations

import re
import sys
from importlib import metadata, util

from .errors import UnsupportedTorchError

LOWEST = (2, 9)
"""Oldest supported release.

The package does not require torch, so that pip never changes an installed torch.
"""

TRIED = ("2.9", "2.10", "2.11", "2.12", "2.13", "2.14")
"""Releases on which the README's test command was run, in ascending order; see `.ci/newest`."""

# (?a): digits of other scripts are no release.
_RELEASE = r"(?a)(\d+)\.(\d+)(?!\d)"


def torch_version() -> str:
    """Return the version of torch, as in 2.13.0+cpu; "" if torch is missing or has no version."""
    # Of the imported torch, which may be another than the installed one.
    version = str(getattr(sys.modules.get("torch"), "__version__", ""))
    if not version:
        try:
            version = str(metadata.version("torch"))
        except metadata.PackageNotFoundError:
            return ""
    return version


def running_release() -> str:
    """Return the `major.minor` of the installed torch, including dev builds; "" if missing."""
    match = re.match(_RELEASE, torch_version())
    return ".".join(match.groups()) if match else ""


def why_unsupported() -> str:
    """Explain why captures are impossible: torch is too old or missing. "" if supported.

    A torch without a version is assumed to be new.
    """
    version = torch_version()
    release = re.match(_RELEASE, version)
    if release and (int(release[1]), int(release[2])) < LOWEST:
        return f"{_needs()}, but this is {version.partition('+')[0]}"
    if not version and not _is_installed():
        return f"{_needs()}, but torch is not installed"
    return ""


def why_untried(version: str) -> str:
    """Say that `version` of this package was not tested with the installed torch. "" if it was."""
    release = running_release()
    if not release or release in TRIED or why_unsupported():
        return ""
    return (
        f"torch {release} has not been tried with pytest-torchgraph {version}: if a result "
        f"looks wrong, compare it with torch {TRIED[-1]}, or update pytest-torchgraph"
    )


def need_torch() -> None:
    """Raise if torch is too old or missing.

    Raises:
        UnsupportedTorchError: with the reason.
    """
    if reason := why_unsupported():
        raise UnsupportedTorchError(reason)


def _needs() -> str:
    return f"pytest-torchgraph needs torch {'.'.join(map(str, LOWEST))} or newer"


def _is_installed() -> bool:
    """Return True if an import would find a module torch."""
    if "torch" in sys.modules:  # `None` blocks its import
        return sys.modules["torch"] is not None
    return util.find_spec("torch") is not None
