"""Export to Google's model-explorer: graphs as JSON, and matching nodes as its mapping.

Field names follow model-explorer's `graph_builder` and `sync_navigation`. The package itself is not
imported. `collection` exports the graphs of one file, `comparison` those of two files.
"""
