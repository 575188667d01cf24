"""Configuration of Sphinx: `sphinx-build -W -b html docs build/docs`."""

from __future__ import annotations

import pytest_torchgraph

project = "pytest-torchgraph"
author = "the pytest-torchgraph developers"
release = version = pytest_torchgraph.__version__
html_title = f"pytest-torchgraph {version}"
html_theme = "furo"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
nitpicky = False
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": "tuple, Sequence, Mapping"}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
