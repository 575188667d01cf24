"""Export to Google's model-explorer: graphs as JSON, and matching nodes as its mapping.

Field names follow model-explorer's `graph_builder` and `sync_navigation`. The package itself is not
imported. `collection` exports the graphs of one file, and `comparison` exports the graphs of two
files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import front_door

if TYPE_CHECKING:
    from .collection import Pane as Pane
    from .collection import graph_collection as graph_collection
    from .collection import node_data as node_data
    from .comparison import compare as compare
else:
    __getattr__ = front_door(
        __name__,
        {
            "collection": "Pane graph_collection node_data",
            "comparison": "compare",
        },
    )
