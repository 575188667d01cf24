"""torch.fx graphs, live or as printed text, to `Graph` and back.

- `placeholders`, `dynamo_sources`, `aot_descriptors`: names and roles of inputs.
- `from_fx`: the conversion, with `node_meta`, `declared_order`, `source_lines` and `normalize`.
- `canonical_names`, `symbolic_exprs`: names that are the same in every process. `effects/`.
- `compiled_autograd/` and `printed/` make an fx graph of another form first, then convert that.
- `to_fx`: the way back, to a module that runs. `graph_modules`: copies of live modules.
"""
