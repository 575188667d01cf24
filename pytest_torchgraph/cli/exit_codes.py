"""The exit codes of every command, those of `diff`."""

SAME = 0
"""Nothing differs. Also the code of a command that compares nothing and succeeds."""

DIFFERENT = 1
"""The two sides differ."""

TROUBLE = 2
"""A file cannot be read, a graph is not there, nothing can be drawn, or the arguments are wrong."""
