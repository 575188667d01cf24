"""How graphs are obtained: one module per mechanism behind one small protocol.

What users call is in `api`; this module imports nothing, so that what watches the compiler can use
what is here without knowing the mechanisms.
"""
