"""The limits of a search: seconds, and bytes of values."""

from __future__ import annotations

import time

MOST_BYTES = 2**31
"""The most bytes of values that a search keeps, all graphs together."""


class NotFollowedError(Exception):
    """The search cannot go on; the message is the reason, as the end of a sentence."""


class Budget:
    """What is left of the limits of one search.

    Args:
        seconds: the time of the search; None for no limit.
    """

    def __init__(self, seconds: float | None):
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds
        self._bytes = 0

    def check(self) -> None:
        """Raise if no time is left.

        Raises:
            NotFollowedError: if the time is over.
        """
        if self._end is not None and time.monotonic() > self._end:
            raise NotFollowedError(
                f"the {self._seconds:g} seconds of torchgraph_divergence are over"
            )

    def keep(self, size: int) -> None:
        """Count bytes of a value that is kept.

        Raises:
            NotFollowedError: if the values are too large.
        """
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise NotFollowedError(
                f"the values of the graphs take more than {MOST_BYTES / 2**30:g} GiB; a smaller "
                "input or fewer layers may show the same"
            )
