"""What people said of episodes, and which later ones are alike."""

from __future__ import annotations

from typing import Any, NamedTuple

from everlearn.watch.episodes import Blame


class Verdict(NamedTuple):
    """What a person said of an episode: its first sensor, and how far that was from what was expected."""

    number: int
    sensor: str
    departure: float
    """In the unit of the sensor; negative below, 0 where the value itself was expected."""

    def holds(self, blame: Blame) -> bool:
        """Whether a sensor departs as the marked one did: on the same side, and not much farther."""
        return blame.sensor == self.sensor and 0.0 <= departure(blame) / (self.departure or 1e-300) <= 1.25


def departure(blame: Blame) -> float:
    """How far a value lies outside of where it was expected; 0 inside, or where nothing is known."""
    if blame.value > blame.high:
        return blame.value - blame.high
    return blame.value - blame.low if blame.value < blame.low else 0.0


def restored_verdict(known: Any) -> Verdict:
    """The verdict of a list of JSON values; raises TypeError or ValueError for anything else."""
    number, sensor, away = known
    return Verdict(int(number), str(sensor), float(away))
