"""Eager islands: the graphs of the ops that run eagerly between compiled graphs."""
