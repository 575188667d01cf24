"""Front doors: names that a package imports from its modules on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def front_door(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names are imported on first use.

    Without this function, an import of one name would load all modules of the package. No name may
    be the name of a module in the package, because importing the module would replace the name.

    Args:
        package: name of the package.
        names: maps each module to the names that it defines, separated by spaces. In the package,
            `if TYPE_CHECKING` repeats them for type checkers.
    """
    modules = {name: module for module, defined in names.items() for name in defined.split()}

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
