"""Refusals: each says what was given, what is accepted and what to do, with the right status."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sklearn.exceptions import NotFittedError
from starlette.exceptions import HTTPException

from everlearn.errors import EverlearnError, StateFileError
from everlearn.service.logs import REQUEST_ID
from everlearn.service.schemas import LISTS, RECORDS

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers that say that there is no room on the disk, or none for this file."""

_MOST_ERRORS = 5
_LONGEST = 400


class NoModelError(EverlearnError):
    """There is no model of this name."""


class ConflictError(EverlearnError):
    """The request does not fit what the model is or is doing."""


class BusyError(EverlearnError):
    """Too much waits already; the client should try again later."""


class TooExpensiveError(EverlearnError):
    """The question takes more time or room than one question may."""


class ClientGoneError(EverlearnError):
    """Nobody waits for the answer."""


def add_handlers(app: FastAPI) -> None:
    """Let every error that a request can cause end in a status and a reason."""
    app.add_exception_handler(RequestValidationError, _invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _http)  # type: ignore[arg-type]
    app.add_exception_handler(EverlearnError, _refused)
    app.add_exception_handler(NotFittedError, _refused)
    app.add_exception_handler(OSError, _disk)
    app.add_exception_handler(MemoryError, _memory)
    app.add_exception_handler(np.linalg.LinAlgError, _degenerate)
    app.add_exception_handler(Exception, _unexpected)


def answer(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """A refusal as JSON."""
    return JSONResponse({"detail": reason}, status, headers)


def status_of(error: Exception) -> int:
    """The status that tells a client what kind of problem this is."""
    conflict = (ConflictError, NotFittedError)
    # A damaged state file is 503 and not 422: the client asked rightly.
    table = ((NoModelError, 404), (conflict, 409), (BusyError, 429), (StateFileError, 503))
    return next((status for kinds, status in table if isinstance(error, kinds)), 422)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    status = status_of(error)
    reason = (
        "The model has learned nothing yet. Send it rows first." if isinstance(error, NotFittedError) else str(error)
    )
    # Paths of the server concern no client.
    reason = reason.replace(str(request.app.state.repository.store.path), "the state file")
    return answer(status, reason, {"Retry-After": "1"} if status == 429 else None)


async def _http(request: Request, error: HTTPException) -> JSONResponse:
    headers = dict(error.headers or {})
    if error.detail == "There was an error parsing the body":
        error.detail = "The body is JSON that cannot be read: it is nested too deeply, or not in UTF-8."
    # The rest of the body is still on its way: on a connection that is kept it would be read as the next request.
    if error.status_code in (408, 413):
        headers["Connection"] = "close"
    return answer(error.status_code, str(error.detail), headers)


async def _disk(request: Request, error: OSError) -> JSONResponse:
    full = error.errno in FULL
    reason = "The disk is full" if full else f"The state file cannot be used ({error.strerror})"
    return answer(507 if full else 503, f"{reason}. Nothing of this request was kept; try again.", {"Retry-After": "5"})


async def _memory(request: Request, error: Exception) -> JSONResponse:
    return answer(503, "The answer needs more memory than there is. Ask for fewer rows or columns at once.")


async def _degenerate(request: Request, error: Exception) -> JSONResponse:
    """A model that was made by hand can hold numbers that learning never gives."""
    return answer(422, f"The model's numbers are so extreme that this cannot be computed ({error}). Nothing changed.")


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    """A mistake of ours: the log has the details, the client a status."""
    # This answer is made outside of the middleware that gives others their id.
    found = REQUEST_ID.get()
    return answer(
        500, f"The service has made a mistake; its log says more, at the request id {found}.", {"X-Request-ID": found}
    )


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    # A value that may be of several kinds has an error for each; a set would lose the order.
    # At most five: a body of a million wrong cells has as many errors.
    found = dict.fromkeys(_explained(each) for each in list(error.errors())[:_MOST_ERRORS])
    return answer(422, "; ".join(found))


def _explained(error: Any) -> str:
    if error["type"] == "json_invalid":
        return f"The body is not JSON: {error.get('ctx', {}).get('error', 'it cannot be read')}"
    if error["loc"][1:2] == ("targets",) and len(error["loc"]) > 2:
        shown = _short(repr(error.get("input")))
        return f"{_place(error['loc'][:3])}: give text, a whole number, true or false, or a number (got {shown})"
    place, given = _place(error["loc"]), repr(error.get("input"))
    if error["type"] == "finite_number":
        return f"{place}: {given} is not a number of JSON. Give null for a value that was not observed."
    shown = "" if error["type"] in ("missing", "too_long", "too_short") else f" (got {_short(given)})"
    return f"{place}: {_short(error['msg'])}{shown}"


def _place(location: Sequence[str | int]) -> str:
    """Where in the request: rows[3][1], or the parameter's name."""
    parts = [part for part in location[1:] if part not in (LISTS, RECORDS)]
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return _short(text.lstrip(".")) or "body"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
