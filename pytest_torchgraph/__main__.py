"""`python -m pytest_torchgraph`, which puts the working directory first on the import path."""

import sys

from .cli import main

sys.exit(main())
