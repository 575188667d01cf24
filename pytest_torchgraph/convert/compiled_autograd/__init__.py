"""Compiled autograd's graph of a backward, to a `Graph` with ordinary inputs.

- `fold`: its fx graph -> the folded one, without the unpacking of lists and prologues.
- `nodes`: the folded graph -> `Graph`, with the names and modules that `fold` found.
"""
