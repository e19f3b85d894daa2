"""HiGHS without a word on standard output, where commands write what others read."""

from __future__ import annotations

import highspy


class QuietHighs(highspy.Highs):
    """A solver that is silent before HiGHS prints its banner.

    From 1.16 on the constructor enables callbacks while output is still on, and the banner comes
    with that call.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.silent()
        self.setOptionValue("threads", 1)

    def enableCallbacks(self) -> None:  # noqa: N802 - the name of HiGHS
        """Enable callbacks in silence."""
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]
