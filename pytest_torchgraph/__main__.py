"""`python -m pytest_torchgraph`: see `cli`."""

import sys

from .cli.main import main

sys.exit(main())
