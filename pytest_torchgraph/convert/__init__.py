"""Convert torch.fx graphs (live or printed) to `Graph` and back.

- `placeholders`: roles, names and order of inputs.
- `from_fx`: the conversion, using `node_meta`, `source_lines`, `normalize` and `effects`.
- `canonical_names`: names that are the same in every process.
- `compiled_autograd` and `printed/`: build an fx graph from another form, then convert it.
- `rng_states`: ops that a compiled backward recomputes with the forward's random state.
- `refused_nodes`: nodes that torch's caches reject.
- `to_fx`: `Graph` -> runnable module. `graph_modules`: copies of live modules.
"""
