"""Front doors: names that a package imports from its modules on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def front_door(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names are imported on first use.

    Without it, an import of one name would load all modules of the package. A name must differ from
    all module names of the package, because the import of a module sets an attribute of its name.

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
