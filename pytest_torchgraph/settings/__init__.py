"""User settings: options and ini values, limits of the marker, `within` and `allow`.

`options` declares all of them. `config.get` returns the settings of a session, and resolves them on
its first call (`configure`). `limits` checks the arguments of the marker and its ini values,
`paths` the places and patterns among them, and `releases` the ini value `torchgraph_releases`.
"""
