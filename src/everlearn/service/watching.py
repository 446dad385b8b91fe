"""Addresses for a watched machine: its state, its sensors' traces, its episodes, and what people say of them."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from everlearn.service.api import Name, Repository, json_only, refusals
from everlearn.streams.sources.times import TimeFormat
from everlearn.watch.episodes import Episode
from everlearn.watch.session import TRACE, mark_episode, stored_episodes, traces_between, watched_columns
from everlearn.watch.traces import TracePoint, thinned

MOST_POINTS = 600
MOST_EPISODES = 200

router = APIRouter(prefix="/models", dependencies=[Depends(json_only)], tags=["watching"])


class Sensor(BaseModel):
    """The trace of one sensor; null where nothing is known."""

    name: str
    mean: list[float | None]
    least: list[float | None]
    most: list[float | None]
    low: list[float | None] = Field(description="Where 90 % of the values were expected from the other sensors")
    high: list[float | None]


class ShownEpisode(BaseModel):
    """An episode, with its times in seconds since 1970 and as the stream writes them."""

    number: int
    kind: str
    status: str
    severity: str
    begin: float | None
    end: float | None
    shown_begin: str
    first_row: int
    last_row: int
    p_value: float
    sensors: list[str]
    sentence: str
    mark: str


class Machine(BaseModel):
    """What a watcher has seen between two moments."""

    watched: bool = Field(False, description="Whether the model belongs to `everlearn watch`; otherwise all is empty")
    state: str = Field("well", description="well, look or alarm")
    words: str = ""
    has_times: bool = False
    zone: str = Field("", description="Offset of the stream's times from UTC, such as +02:00; empty for none")
    places: list[float] = Field([], description="Times of points in seconds since 1970; rows where there are none")
    first: float | None = Field(None, description="Place of the first point there is")
    last: float | None = None
    rows: int = 0
    sensors: list[Sensor] = []
    episodes: list[ShownEpisode] = []


class Verdict(BaseModel):
    """What an episode was."""

    verdict: str = Field(pattern="^(normal|fault|seen)$")


@router.get("/{name}/watch", responses=refusals(404))
def show_machine(
    repository: Repository,
    name: Name,
    begin: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    end: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    last: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
) -> Machine:
    """Show what a watcher has seen: from `begin` to `end`, or the `last` seconds (rows, where there are no times)."""
    repository.entry(name)
    found = watched_columns(repository.store, name)
    if found is None:
        return Machine()
    columns, how = found
    first_row, last_row, first_time, last_time = repository.store.extent(name, TRACE)
    timed = how is not None and last_time is not None
    first_place, last_place = (first_time, last_time) if timed else (first_row, last_row)
    points: list[TracePoint] = []
    if first_place is not None and last_place is not None:
        if last is not None:
            begin, end = last_place - last, last_place
        # Only what is shown is read: a week has 30,000 points, the last hour 180.
        points = traces_between(
            repository.store, name, first_place if begin is None else begin, last_place if end is None else end,
            by="stream_time" if timed else "row", n_columns=len(columns),
        )  # fmt: skip
    some = thinned(points, MOST_POINTS)
    episodes = stored_episodes(repository.store, name)
    state, words = state_now(episodes)
    return Machine(
        watched=True, state=state, words=words, has_times=timed, zone=how.zone if how else "",
        places=[point.time if timed else float(point.row) for point in some],
        first=first_place, last=last_place, rows=0 if last_row is None else last_row + 1,
        sensors=[_sensor(column, j, some) for j, column in enumerate(columns)],
        episodes=[_shown(episode, how) for episode in episodes[-MOST_EPISODES:]],
    )  # fmt: skip


def state_now(episodes: list[Episode]) -> tuple[str, str]:
    """The state that is seen from across the room: a name, and words."""
    # What a person has marked is dealt with: the display across the room shows what still needs somebody.
    lasting = [episode for episode in episodes if episode.is_open and not episode.mark]
    alarms = [episode for episode in lasting if episode.severity == "alarm"]
    if alarms:
        return "alarm", f"Alarm: {', '.join(_subject(episode) for episode in alarms)}"
    if lasting:
        return "look", f"Look: {', '.join(_subject(episode) for episode in lasting)}"
    return "well", "All well"


def _subject(episode: Episode) -> str:
    return episode.blamed[0] if episode.sensors and episode.kind != "sampling" else episode.kind


def _sensor(name: str, column: int, points: list[TracePoint]) -> Sensor:
    curves: dict[str, Any] = {}
    for field in ("mean", "least", "most", "low", "high"):
        values = (float(getattr(point, field)[column]) for point in points)
        curves[field] = [value if math.isfinite(value) else None for value in values]
    return Sensor(name=name, **curves)


def _shown(episode: Episode, how: TimeFormat | None) -> ShownEpisode:
    record = episode.record()
    when = "" if how is None else how.show(episode.begin).replace("T", " ")[:16]
    return ShownEpisode(**{**record, "sensors": episode.blamed, "shown_begin": when})


@router.post("/{name}/episodes/{number}/mark", responses=refusals(404))
def mark(repository: Repository, name: Name, number: int, body: Verdict) -> ShownEpisode:
    """Say what an episode was; the watcher that runs takes note within a second or two."""
    repository.entry(name)
    found = watched_columns(repository.store, name)
    return _shown(mark_episode(repository.store, name, number, body.verdict), found[1] if found else None)
