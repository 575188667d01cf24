"""The release of torch at hand, and whether it is new enough. Nothing here imports torch."""

from __future__ import annotations

import re
import sys
from importlib import metadata, util

from .errors import UnsupportedTorchError

LOWEST = (2, 9)
"""The oldest release that can be watched. It is no requirement of the package, which never makes
pip change a torch that is installed."""

_RELEASE = r"(?a)(\d+)\.(\d+)(?!\d)"


def torch_version() -> str:
    """The version of torch, as in 2.13.0+cpu; "" where there is none, or it does not say."""
    version = str(getattr(sys.modules.get("torch"), "__version__", ""))
    if not version:
        try:
            version = str(metadata.version("torch"))
        except metadata.PackageNotFoundError:
            return ""
    return version


def running_release() -> str:
    """The `major.minor` of the torch at hand, dev builds included; "" where there is none."""
    found = re.match(_RELEASE, torch_version())
    return ".".join(found.groups()) if found else ""


def why_unsupported() -> str:
    """Why nothing can be captured here: torch is too old, or not installed. "" where all is well.

    A torch that does not say its release is taken for a new one.
    """
    version = torch_version()
    release = re.match(_RELEASE, version)
    if release and (int(release[1]), int(release[2])) < LOWEST:
        return f"{_needs()}, this is {version.partition('+')[0]}"
    if not version and not _is_there():
        return f"{_needs()}, and none is installed"
    return ""


def need_torch() -> None:
    """Refuse what needs torch, where it is too old or not installed.

    Raises:
        UnsupportedTorchError: with the reason.
    """
    if reason := why_unsupported():
        raise UnsupportedTorchError(reason)


def _needs() -> str:
    return f"pytest-torchgraph needs torch {'.'.join(map(str, LOWEST))} or newer"


def _is_there() -> bool:
    """Whether there is a module torch, which an import would find."""
    if "torch" in sys.modules:
        return sys.modules["torch"] is not None
    return util.find_spec("torch") is not None
