"""What a model file says about its model: where it came from, what it has learned, whether rows are inside.

It stands in the file beside the model and is no part of it: models that have learned the same are equal, whenever and
wherever they were saved, and have the same digest.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from everlearn.errors import InputError, ModelFileError
from everlearn.typing import SaveableModel

DIGEST_DIGITS = 16
"""Digits of a digest by which a parent is known again: 64 bits."""

MOST_TAGS, MOST_TEXT, MOST_PARENTS = 100, 400, 200_000
_LARGEST = 1.7976e308  # with the digits of a range, the largest number that is not infinite
_UNIT = re.compile(r"(.*\S)\s*[\[(]([^\[\]()]+)[\])]")


class Parent(NamedTuple):
    """A model that was merged: the name of its file, the first digits of its digest, and its rows."""

    name: str
    digest: str
    rows: int


@dataclass(frozen=True)
class Origin:
    """Where a model came from; it goes with the model, and with its files.

    Attributes
    ----------
    tags : dict
        What its owner says about it.
    units : dict
        Unit of a column, by its name.
    parents : tuple of Parent
        The files that were merged into it.
    created : float or None
        Seconds since 1970 when its first row was learned.
    source : Parent or None
        The file that it was read from; not in its own files.
    """

    tags: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    parents: tuple[Parent, ...] = ()
    created: float | None = None
    source: Parent | None = None

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # nothing in it is ever changed, and a list of thousands of parents need not be copied


def origin_of(model: Any) -> Origin:
    """Where a model came from, as far as it is known."""
    found = vars(model).get("_origin_")
    return found if isinstance(found, Origin) else Origin()


def check_texts(texts: Any, what: str) -> dict[str, str]:
    """Tags or units: a few short texts by name."""
    if not isinstance(texts, dict) or not all(isinstance(text, str) for pair in texts.items() for text in pair):
        raise InputError(f"{what} must be a dict of texts, such as {{'site': 'north'}}; got {texts!r}.")
    if len(texts) > MOST_TAGS or any(not key or len(key) + len(text) > MOST_TEXT for key, text in texts.items()):
        raise InputError(
            f"{what} takes at most {MOST_TAGS} names, each with a text of together {MOST_TEXT} characters."
        )
    return dict(texts)


# -- writing ---------------------------------------------------------------------------------------


def about(model: SaveableModel, *, dated: bool) -> dict[str, Any]:
    """What the file of a model says about it; what depends on the clock, and ranges, only if it is `dated`."""
    origin = origin_of(model)
    found: dict[str, Any] = {}
    if model._is_started():
        found["rows"] = int(getattr(model, "n_samples_seen_", 0))
        found["keeps_rows"] = bool(getattr(model, "keeps_rows_", False))
        if dated:
            found |= _dated(model, origin)
    for name in ("tags", "units"):
        if texts := getattr(origin, name):
            found[name] = dict(sorted(texts.items()))
    if origin.parents:
        found["parents"] = [list(parent) for parent in origin.parents]
    return found


def _dated(model: Any, origin: Origin) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, seconds in (("created", origin.created), ("last_row", vars(model).get("_last_row_"))):
        if seconds is not None:
            found[name] = _written(seconds)
    moments = model._column_moments() if hasattr(model, "_column_moments") else None
    if moments is not None:
        # A smallest and a largest value would be those of single rows.
        found["ranges"] = [list(_usual_range(float(m), float(s))) for m, s in zip(*moments, strict=True)]
    return found


def _usual_range(mean: float, std: float) -> tuple[float, float]:
    """Three standard deviations about a mean; JSON has no infinity, which those of huge values may reach."""
    low, high = (math.copysign(min(_LARGEST, abs(end)), end) for end in (mean - 3.0 * std, mean + 3.0 * std))
    return float(f"{low:.5g}"), float(f"{high:.5g}")


def _written(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def checksum(found: dict[str, Any]) -> str:
    """Tells damage of what a file says about its model."""
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:DIGEST_DIGITS]


# -- reading ---------------------------------------------------------------------------------------


def checked(content: dict[str, Any]) -> dict[str, Any]:
    """What a file says about its model; one that says something else than a file can is refused."""
    found = content.get("about", {})
    # A checksum of its own: the digest of the model leaves this part out, so that equal models have equal digests.
    if type(found) is not dict or (found and content.get("about_digest") != checksum(found)):
        raise ModelFileError("it is damaged: what it says about its model is not what was saved. Copy it again.")
    for name in ("tags", "units"):
        try:
            check_texts(found.get(name, {}), name)
        except InputError as error:
            raise ModelFileError(str(error)) from error
    # The list goes with every merge: without a bound a file could make all later ones grow.
    parents = found.get("parents", [])
    if type(parents) is not list or len(parents) > MOST_PARENTS or not all(map(_is_parent, parents)):
        raise ModelFileError("the list of merged models is not one.")
    for name in ("created", "last_row"):
        if name in found:
            _seconds(found[name])
    if not all(type(found.get(name, kind())) is kind for name, kind in (("rows", int), ("keeps_rows", bool))):
        raise ModelFileError("what it says about its model is of another type.")
    ranges = found.get("ranges", [])
    if type(ranges) is not list or not all(
        type(pair) is list and len(pair) == 2 and all(type(end) is float for end in pair) for pair in ranges
    ):
        raise ModelFileError("the ranges of its columns are not ranges.")
    return found


def _is_parent(item: Any) -> bool:
    return (
        type(item) is list
        and [type(part) for part in item] == [str, str, int]
        and len(item[0]) <= MOST_TEXT
        and len(item[1]) <= 64
        and 0 <= item[2] < 2**62
    )


def _seconds(text: Any) -> float:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(f"it has the time {str(text)[:40]!r}, which is none.") from error


def restore(model: Any, found: dict[str, Any], source: Parent | None) -> None:
    """Give a model that was read the origin that its file has, in place."""
    if not model._is_started() and not found:
        return
    created = found.get("created")
    model.__dict__["_origin_"] = Origin(
        dict(found.get("tags", {})),
        dict(found.get("units", {})),
        tuple(Parent(*item) for item in found.get("parents", [])),
        None if created is None else _seconds(created),
        source,
    )
    if "last_row" in found:
        model.__dict__["_last_row_"] = _seconds(found["last_row"])


def summary(content: dict[str, Any], n_bytes: int, kind: str) -> dict[str, Any]:
    """Everything that the header of a file says, as plain values."""
    found, model = checked(content), content["model"]
    names = model.get("feature_names") or [
        f"column{i}" for i in range(model.get("fitted", {}).get("n_features_in_", 0))
    ]
    ranges, units = found.get("ranges", []), found.get("units", {})
    columns = []
    for i, name in enumerate(names):
        low, high = ranges[i] if i < len(ranges) else (None, None)
        columns.append({"name": name, "unit": units.get(name) or unit_in(name), "low": low, "high": high})
    return {
        "kind": kind,
        "format": content["format"],
        "version": content.get("everlearn"),
        "digest": content["digest"],
        "bytes": n_bytes,
        "created": found.get("created"),
        "last_row": found.get("last_row"),
        "rows": found.get("rows"),
        "keeps_rows": found.get("keeps_rows"),
        "tags": found.get("tags", {}),
        "columns": columns,
        "parameters": {name: _plain(value) for name, value in model.get("params", {}).items()},
        "parents": [dict(zip(Parent._fields, item, strict=True)) for item in found.get("parents", [])],
    }


def unit_in(name: str) -> str | None:
    """The unit that stands behind a column's name, as in ``temp [°C]`` or ``power (kW)``."""
    match = _UNIT.fullmatch(name)
    return match[2].strip() if match else None


def _plain(value: Any) -> Any:
    """A parameter for people: the class of what is no number or text."""
    return value if not isinstance(value, dict) else value.get("class", value.get("kind"))


def contributions(model: Any) -> tuple[Parent, ...]:
    """The files that a model brings into a merge: its own, or those that were merged into it."""
    origin = origin_of(model)
    # One level only: a merger that was read from a file is named by that file, which has the list of its own parents.
    return origin.parents if origin.source is None else (origin.source,)


def named(model: Any, name: str | os.PathLike[str]) -> None:
    """Let a model that was read from a file be known under another name when it is merged, in place."""
    origin = origin_of(model)
    if origin.source is not None:
        source = origin.source._replace(name=os.fspath(name)[-MOST_TEXT:])
        model.__dict__["_origin_"] = Origin(origin.tags, origin.units, origin.parents, origin.created, source)
