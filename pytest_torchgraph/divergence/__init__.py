"""The first op that differs from the eager run, and the compiler stage that it differs in."""
