"""Prints the messages of the named checks if an environment variable disables compilation."""

from __future__ import annotations

import sys

from watching.test_never_vacuous import CHECKS
from watching.uncompiled_cases import compiled, ones, plain

from pytest_torchgraph import watch


def main() -> None:
    function = compiled(plain)
    with watch() as seen:
        function(ones())
    for name in sys.argv[1:]:
        try:
            CHECKS[name](seen)
        except AssertionError as error:
            print("check", name, " ".join(str(error).split()))


if __name__ == "__main__":
    main()
