"""The first op that differs from the eager run, and the compiler stage that it differs in.

`stages.Search` is the entry. It runs the step eagerly, and once for each compiler stage that the
bisection needs (`sides`), and keeps the value of each node (`valued`). Then `walk` compares two of
these runs: `pairs` finds nodes with equal values, `judge` decides if two values differ by more than
rounding, and a replay with eager's value proves a finding. `values` has the numerical comparisons,
and the limits of a search.
"""
