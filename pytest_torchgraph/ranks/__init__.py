"""Capture many ranks in one process, each under torch's fake process group.

`capture_ranks` simulates one rank after the other (`fake_group`), captures a model in each, and
returns `ranks.Ranks`. Its assertions use `agreement`, which finds collectives in different orders,
deadlocks, and sends without a receive.
"""
