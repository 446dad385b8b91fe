"""Addresses for a watched machine: its state, its sensors' traces, its episodes, and what people say of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import BaseModel, Field

from everlearn.service.api import KnownName, Repository, json_only, refusals
from everlearn.service.repository import ModelRepository
from everlearn.streams.sources.times import TimeFormat
from everlearn.streams.store.trace_table import FIELDS, LEVELS, TraceCell, joined, stacked
from everlearn.typing import Array
from everlearn.watch.episodes import Episode
from everlearn.watch.session import mark_episode, stored_episodes, watched_columns
from everlearn.watch.traces import GRAIN_ROWS, GRAIN_SECONDS

MOST_POINTS = 750
"""Points of a reply: more than a picture of one sensor has columns of pixels, even if it is as wide as a wall."""
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
    level: int = Field(1, description="20 seconds, or 20 rows without times, in a point; 0 for years")
    newer: bool = Field(
        False, description="Whether points are those behind `after` only, and episodes those that changed"
    )
    change: int = Field(0, description="Latest change of an episode; give it as `since` to get later ones only")
    cells: list[int] = Field([], description="Numbers of the points, whatever is asked for; the last may be incomplete")
    places: list[float] = Field([], description="Times of points in seconds since 1970; rows where there are none")
    first: float | None = Field(None, description="Place of the first point there is")
    last: float | None = None
    rows: int = 0
    sensors: list[Sensor] = []
    episodes: list[ShownEpisode] = []


class Verdict(BaseModel):
    """What an episode was."""

    verdict: str = Field(pattern="^(normal|fault|seen)$")


class Extent(BaseModel):
    """Where the traces of a watcher begin and end."""

    timed: bool
    first: float
    last: float
    row: int


@router.get("/{name}/watch", response_model=Machine, responses=refusals(404))
def show_machine(
    repository: Repository,
    name: KnownName,
    begin: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    end: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    last: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
    level: Annotated[int | None, Query(description="The level that points are known of")] = None,
    after: Annotated[int | None, Query(description="Number of a point: of this level, those behind it only")] = None,
    since: Annotated[int, Query(description="A change: with `after`, episodes that changed later only")] = 0,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Show what a watcher has seen: from `begin` to `end`, or the `last` seconds (rows, where there are no times).

    A reply has at most 750 points of each sensor: the longer the time, the longer the stretch of which each point has
    mean and extremes. Whoever asks again gives the `ETag` of the reply before and gets a 304 while nothing has changed,
    and `level`, `after` and `since` to get what is new only.
    """
    repository.entry(name)
    extent = _extent(repository, name)
    change = repository.store.latest_change(name)
    tag = f'"{change}-{extent.row if extent else 0}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if if_none_match == tag:
        return Response(status_code=304, headers=headers)
    found = watched_columns(repository.store, name)
    if found is None:
        return Response(Machine().model_dump_json(), media_type="application/json")
    columns, how = found
    machine: dict[str, Any] = {"watched": True, "level": 1, "newer": False, "change": change, "rows": 0,
                               "has_times": False, "zone": how.zone if how else "",
                               "cells": [], "places": [], "first": None, "last": None, "sensors": []}  # fmt: skip
    if extent is not None:
        if last is not None:
            begin, end = extent.last - last, extent.last
        begin = extent.first if begin is None else max(begin, extent.first)
        chosen, first_cell, last_cell = _level(repository, name, extent, begin, extent.last if end is None else end)
        newer = after is not None and level == chosen
        if newer:
            first_cell = max(first_cell, (after or 0) + 1)
        cells = repository.store.trace_cells(name, chosen, first_cell, last_cell)
        if len(cells) > MOST_POINTS:  # years: the longest level has a point for each day
            n, newer = -(-len(cells) // MOST_POINTS), False
            chosen, cells = 0, [joined(cells[i : i + n]) for i in range(0, len(cells), n)]
        machine |= {
            "level": chosen, "newer": newer, "has_times": extent.timed, "first": extent.first, "last": extent.last,
            "rows": extent.row + 1, "cells": [cell.cell for cell in cells],
            "places": [cell.time if extent.timed else float(cell.row) for cell in cells],
            "sensors": _sensors(columns, cells),
        }  # fmt: skip
    episodes = stored_episodes(repository.store, name, latest=MOST_EPISODES)
    machine["state"], machine["words"] = state_now(episodes)
    if machine["newer"]:
        episodes = stored_episodes(repository.store, name, latest=MOST_EPISODES, after=since)
    machine["episodes"] = [_shown(episode, how).model_dump() for episode in episodes[-MOST_EPISODES:]]
    # Written here and not by the framework, which would look at each of 30,000 numbers.
    body = json.dumps(machine, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Response(body, media_type="application/json", headers=headers)


def _extent(repository: ModelRepository, name: str) -> Extent | None:
    """Where the traces begin and end; the first levels may have lost their beginning."""
    ends = [found for level in LEVELS if (found := repository.store.trace_ends(name, level)) is not None]
    if not ends:
        return None
    last = ends[0][1]
    timed = last.time == last.time
    first = min(cell.time if timed else float(cell.row) for cell, _ in ends)
    return Extent(timed=timed, first=first, last=last.time if timed else float(last.row), row=last.row)


def _level(repository: ModelRepository, name: str, extent: Extent, begin: float, end: float) -> tuple[int, int, int]:
    """The level that shows a stretch in enough detail and not in more, and its first and last cell there."""
    grain = GRAIN_SECONDS if extent.timed else float(GRAIN_ROWS)
    for level in LEVELS:
        first, last = int(begin // (level * grain)), int(end // (level * grain))
        if last - first >= MOST_POINTS:
            continue
        ends = repository.store.trace_ends(name, level)
        # Of a time that this level has lost already a longer one tells.
        if ends is not None and ends[0].cell <= first:
            break
    return level, first, last


def _sensors(columns: Sequence[str], cells: Sequence[TraceCell]) -> list[dict[str, Any]]:
    values = rounded(stacked(cells, len(columns)).astype(np.float64))
    plain = values.astype(object)
    plain[np.isnan(values)] = None
    found = []
    for j, name in enumerate(columns):
        found.append({"name": name, **{field: plain[:, k, j].tolist() for k, field in enumerate(FIELDS)}})
    return found


def rounded(values: Array) -> Array:
    """Values (n, 5, D), those of each sensor to five digits of their median: a screen shows no more."""
    if not len(values):
        return values
    sizes = np.abs(values).reshape(-1, values.shape[2])
    sizes = np.where(sizes > 0, sizes, np.nan)
    found = values.copy()
    for j in np.flatnonzero(np.isfinite(sizes).any(axis=0)).tolist():
        decimals = 4 - int(np.floor(np.log10(np.nanmedian(sizes[:, j]))))
        found[:, :, j] = np.round(values[:, :, j], min(decimals, 300))
    return found


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


def _shown(episode: Episode, how: TimeFormat | None) -> ShownEpisode:
    record = episode.record()
    when = "" if how is None else how.show(episode.begin).replace("T", " ")[:16]
    return ShownEpisode(**{**record, "sensors": episode.blamed, "shown_begin": when})


@router.post("/{name}/episodes/{number}/mark", responses=refusals(404))
def mark(repository: Repository, name: KnownName, number: int, body: Verdict) -> ShownEpisode:
    """Say what an episode was; the watcher that runs takes note within a second or two."""
    repository.entry(name)
    found = watched_columns(repository.store, name)
    return _shown(mark_episode(repository.store, name, number, body.verdict), found[1] if found else None)
