"""Graphs as JSON for Google's model-explorer, and the matching of two captures as its mapping.

Names of fields are those of model-explorer's `graph_builder` and `sync_navigation`; nothing of it
is imported. `collection` makes the graphs of one file, `comparison` those of two.
"""
