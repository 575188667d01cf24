"""Failed guards: torch's report of them, and the details that it omits.

checks  what a guard checks: the subject, its old value, the words for it
read    torch's text of a guard, parsed; reads of variables that run no code of the user's
look    details observed while torch reports why it recompiles; values as messages show them
"""
