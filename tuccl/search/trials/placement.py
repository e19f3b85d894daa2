"""`Placement`: the communicators of a shape that are timed, by where their ranks sit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """Some communicators of one division of the machine, which are all in use at once.

    The default is all siblings of the division that `--shapes` names.
    """

    stride: int = 1
    """Distance in GPUs of a host from a rank to the next one: 1 for neighbours."""
    siblings: tuple[int, ...] = ()
    """Numbers of the communicators that count, ascending; empty: all of them."""

    @property
    def suffix(self) -> str:
        """Part of a task's name, as `/4:0.1`; empty for the default."""
        return f"/{self.text}" if self.text else ""

    @property
    def text(self) -> str:
        """Stride and siblings, as `4:0.1`; empty for the default."""
        if self == ANYWHERE:
            return ""
        return f"{self.stride}:{'.'.join(map(str, self.siblings))}"

    @classmethod
    def parse(cls, text: str) -> Placement:
        """Return the placement of its `text`.

        Raises:
            ValueError: It is of none.
        """
        if not text:
            return cls()
        stride, separator, siblings = text.partition(":")
        numbers = tuple(int(number) for number in siblings.split(".") if number)
        found = cls(int(stride), numbers)
        if not separator or found.text != text:
            raise ValueError(f"{text!a:.40} is not a placement")
        return found


ANYWHERE = Placement()
"""All siblings of the division that `--shapes` names."""
