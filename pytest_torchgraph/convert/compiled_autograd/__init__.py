"""Graphs of compiled autograd, with the calls of autograd's machinery folded away."""
