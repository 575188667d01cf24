"""Guards that failed: what torch says of them, and what it does not say.

text    torch's text of a guard, taken apart: check, lines, hints, stack
checks  what a guard checks: the subject, what it was, the words for it
read    reads of the user's variables that run no code of the user's
shown   values as messages show them
look    what is to be seen while torch says why it compiles again
"""
