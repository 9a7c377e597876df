# SPDX-License-Identifier: MIT
"""Configuration of the documentation site: ``nox -s docs`` builds it, without a network."""

from __future__ import annotations

import sys
from pathlib import Path

from iolab import __version__
from iolab.cli import app, mail

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
# The page of the command line shows an extra's own command, with its options.
app.add_command(mail.load())

project = "iolab"
author = "The iolab developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "from_code",
]
exclude_patterns = ["_build", "_ext"]

html_theme = "furo"
html_title = "iolab"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

# The headings that a link may name, as GitHub makes them.
myst_heading_anchors = 4
# Single backticks in a docstring are names of code; those that no page has stay as they are.
default_role = "py:obj"

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
