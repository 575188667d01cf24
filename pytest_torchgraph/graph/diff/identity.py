"""What tells that findings of several comparisons are one edit: tokens that they have in common.

Within one comparison `places` has already made one finding of each edit. Over several comparisons
nothing but these tokens is left of the graphs: they are texts, the same in every process, and can
be sent from a worker to its controller.

- `edits`: all that the edit did as seen from its module, see `keys`, and the numbers of the modules
  in this one: of a sequence in a layer the edit of its third module is not that of its first.
- `line`: the line of the user's code, where it is known, and which ops came and went there.
- `where`: the nodes that it took away or changed, by name, and which ops came and went: these are
  alike where what surrounds them, which `edits` tells, is not, as in training and inference. Of use
  only where no comparison has two of these.
- `rewrite`: that one op was replaced by others wherever it was: none of it is left.
- `release`: which ops came and went; of use only where the release of torch is another one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """The tokens of a finding; "" for one that says nothing here.

    Attributes:
        edits: one in common for the same edit of the same code.
        line: equal for the same edit of one line of code.
        rewrite: equal for the same op that is replaced by the same ones everywhere.
        release: equal for the same ops that came and went.
        where: equal for the same ops that came and went in the place of nodes of the same names.
    """

    edits: tuple[str, ...] = ()
    line: str = ""
    rewrite: str = ""
    release: str = ""
    where: str = ""
