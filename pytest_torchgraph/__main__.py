"""`python -m pytest_torchgraph`: see `cli`. Prefer the script `pytest-torchgraph`."""

import sys

from .cli import main

sys.exit(main())
