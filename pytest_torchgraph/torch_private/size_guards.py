"""Guards of a compilation on its dynamic sizes."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from .private_names import get

_MAX_INT32 = 2**31 - 1


def shape_env() -> Any:
    """Return the `ShapeEnv` of the current compilation, `None` if there is none.

    It is a copy without fake tensors, and gets the guards that AOTAutograd and inductor add later.
    """
    env = copy.copy(
        getattr(getattr(get("tracing_context")(), "fake_mode", None), "shape_env", None)
    )
    if env is not None:
        env.tracked_fakes = None
    return env


def broken_guards(
    env: Any, symbols: dict[tuple[str, int], Any], place: tuple[str, int], low: int, high: int
) -> Iterator[tuple[str, str]]:
    """Yield each guard that a size does not meet, with the line that made it, as torch writes it.

    The line is "" if torch does not know it. Only some sizes of the range are tried: those next to
    the constants of a guard, where its truth can change, and the first 16, for divisibility.

    Args:
        env: the `ShapeEnv` of the compilation, from `shape_env`.
        symbols: the symbol of each dynamic size, by input and dimension.
        place: input and dimension of the size.
        low, high: the smallest and the largest size.
    """
    own = symbols[place]
    names = {str(symbol): "{}.shape[{}]".format(*key) for key, symbol in symbols.items()}
    # Other sizes of the input stay. Sizes of other inputs may change with this size.
    fixed = {symbol for key, symbol in symbols.items() if key[0] == place[0] and key != place}
    for key, symbol in symbols.items():
        if symbol == own and key[0] == place[0] and key != place:
            other = "{}.shape[{}]".format(*key)
            yield f"is tied to the equal size {other}, as torch does: pass unequal ones", ""
            break
    names[str(own)] = "{}.shape[{}]".format(*place)
    fixed = fixed.union(*(env.replace(symbol).free_symbols for symbol in fixed))
    # Each guard with the symbol of the size in it, and its line. If an equality replaced the size
    # by another symbol, look at both forms: the replacement makes the equality itself true.
    guards = {(guard.expr, own): guard.sloc.maybe_user_loc for guard in env.guards}
    if (size := env.replace(own)).is_Symbol:
        guards |= {(env.replace(expr), size): line for (expr, _), line in guards.items()}
        bounds = env.var_to_range[size]
        guards |= {(size >= bounds.lower, size): None, (size <= bounds.upper, size): None}
    # Before torch 2.12, the name is `var_to_val`.
    hints = getattr(env, "backed_var_to_val", None) or env.var_to_val
    explained = False
    for (guard, symbol), line in guards.items():
        free = guard.free_symbols - fixed - {symbol}
        if symbol not in guard.free_symbols or (free and guard.is_Equality):
            continue
        # The numbers in the guard, and the sizes at tracing of its symbols.
        atoms = [*guard.atoms(), *map(hints.__getitem__, guard.free_symbols)]
        constants = {int(atom) for atom in atoms if atom.is_Integer}
        # Inductor's guards against overflow. The range follows from the guards before it.
        if max(constants) >= _MAX_INT32 or (explained and line is None):
            explained = True
            continue
        # With a factor, as in `2 * size < 10`, the truth changes at a quotient of two constants.
        near = {a // b for a in constants for b in constants | {1} if b > 0}
        sizes = {*range(low, low + 16), high, *(n + more for n in near for more in (-1, 0, 1))}
        # A size breaks the guard if it does so both with the other free sizes as at tracing, and
        # with all of them equal to it.
        broken = [
            number
            for number in sizes
            if low <= number <= high
            and not any(
                guard.subs({**hints, **dict.fromkeys(more, number), symbol: number})
                for more in ((), free)
            )
        ]
        if broken:
            text = re.sub(r"\w+", lambda name: names.get(name[0], name[0]), str(guard))
            yield f"must satisfy {text}, not {min(broken)}", line or ""
            explained = True
