"""torch.fx graphs, live or as printed text, to `Graph` and back.

- `placeholders`: roles, names and order of inputs.
- `from_fx`: the conversion, with `node_meta`, `source_lines`, `normalize` and `effects`.
- `canonical_names`: names that are the same in every process.
- `compiled_autograd` and `printed/` first build an fx graph from another form, then convert it.
- `rng_states`: ops that a compiled backward runs again.
- `refused_nodes`: what torch's caches refuse.
- `to_fx`: the way back, to a module that runs. `graph_modules`: copies of live modules.
"""
