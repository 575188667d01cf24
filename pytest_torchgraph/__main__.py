"""`python -m pytest_torchgraph`: see `cli`."""

import io
import sys

from .cli import main

for stream in (sys.stdout, sys.stderr):
    if isinstance(stream, io.TextIOWrapper):  # Windows encodings may lack characters of a name
        stream.reconfigure(errors="backslashreplace")

sys.exit(main())
