"""A corpus of models that are tried with the package, and an account of what ran in each.

`python -m corpus` runs it; pytest collects nothing here.
"""
