"""The addresses of the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from everlearn.errors import InputError
from everlearn.persistence.model_file import loads
from everlearn.reporting import figures as pictures
from everlearn.service import responses as answers
from everlearn.service import schemas as bodies
from everlearn.service.events import Feeds
from everlearn.service.metrics import exposition
from everlearn.service.repository import Desk

MODEL_FILE = "application/octet-stream"

Name = Annotated[
    str, Path(pattern=bodies.NAME_PATTERN, description="Name of a model: letters, digits, dots, dashes, underscores.")
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="A sender's own name for the batch; a batch that is sent again with its key is not learned again.",
    ),
]
Drawing = Literal["likelihood", "components", "weights", "forgetting", "throughput"]


def desk_of(request: Request) -> Desk:
    """The models of the application."""
    desk: Desk = request.app.state.desk
    return desk


async def json_only(request: Request) -> None:
    """Bodies are JSON and say so, which a page of another origin cannot do without being asked first."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method in ("POST", "PUT") and kind != "application/json":
        raise HTTPException(415, f"Send JSON with the header Content-Type: application/json (got {kind[:80]!r}).")


TheDesk = Annotated[Desk, Depends(desk_of)]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How an address may refuse, for the description of the service."""
    everywhere = (400, 401, 403, 408, 413, 415, 421, 422, 429, 503, 507)
    return {status: {"model": bodies.Problem} for status in sorted({*everywhere, *statuses})}


models = APIRouter(prefix="/models", dependencies=[Depends(json_only)])
files = APIRouter(prefix="/models")
about = APIRouter()


# -- models ----------------------------------------------------------------------------------------


@models.get("", tags=["models"], responses=refusals())
def list_models(desk: TheDesk) -> bodies.Listing:
    """List all models."""
    listed = [
        bodies.Listed(name=e.name, kind=e.kind, version=e.version, rows=e.n_rows, bytes=e.bytes, updated=e.updated)
        for e in desk.store.models()
    ]
    return bodies.Listing(models=listed)


@models.put("/{name}", tags=["models"], status_code=201, responses=refusals(409))
async def create_model(desk: TheDesk, name: Name, body: bodies.NewModel) -> bodies.Summary:
    """Make a model with parameters of its own.

    Rows sent to a name that is new make one with the usual parameters.
    """
    _check_width(desk, body.columns)
    answers.check_distinct(body.columns)
    done = await run_in_threadpool(desk.create, name, body.kind, body.parameters, body.columns)
    await asyncio.wrap_future(done)
    return await _summary(desk, name)


@models.get("/{name}", tags=["models"], responses=refusals(404))
async def show_model(desk: TheDesk, name: Name) -> bodies.Summary:
    """Summarise a model and its run."""
    return await _summary(desk, name)


@models.delete("/{name}", tags=["models"], status_code=204, responses=refusals(404, 409))
async def delete_model(desk: TheDesk, name: Name) -> None:
    """Forget a model, its history and the rows that wait for it."""
    await asyncio.wrap_future(desk.delete(name))


@models.get("/{name}/history", tags=["models"], responses=refusals(404))
def show_history(desk: TheDesk, name: Name, limit: Annotated[int, Query(ge=1, le=4096)] = 1000) -> bodies.History:
    """Show the run so far as intervals of rows, joined to at most `limit` of them."""
    desk.entry(name)
    points = [
        {key: answers.finite(value) if isinstance(value, float) else value for key, value in point._asdict().items()}
        for point in desk.store.history(name, limit=limit)
    ]
    return bodies.History.model_validate({"intervals": points})


# -- learning --------------------------------------------------------------------------------------


@models.post("/{name}/learn", tags=["learning"], status_code=202, responses=refusals(404, 409))
async def learn(desk: TheDesk, name: Name, body: bodies.Rows, key: Key = None) -> bodies.Accepted:
    """Send rows to be learned.

    They are on the disk when the answer comes, and are learned once, soon after, in the order of the answers. A name
    that is new makes a Gaussian mixture with these columns.
    """
    _check_size(desk, body)
    columns = desk.known_columns(name) or await run_in_threadpool(_ready_columns, desk, name, body)
    X = answers.arranged(body.rows, body.columns, columns)
    batch = await asyncio.wrap_future(desk.put(name, X, key))
    return bodies.Accepted(accepted=len(X), batch=batch, columns=columns)


def _ready_columns(desk: Desk, name: str, body: bodies.Rows) -> list[str]:
    """Columns of a model that takes rows; a name that is new becomes one."""
    if desk.store.entry(name) is None:
        columns = body.columns or [f"x{j}" for j in range(len(body.rows[0]))]
        answers.check_distinct(columns)
        answers.arranged(body.rows, columns, columns)
        desk.ensure(name, columns).result()
    return desk.ready_columns(name)


@files.post(
    "/{name}/merge",
    tags=["learning"],
    responses=refusals(409),
    openapi_extra={
        "requestBody": {"required": True, "content": {MODEL_FILE: {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def merge(desk: TheDesk, name: Name, request: Request) -> bodies.Summary:
    """Merge a model learned elsewhere: the body is a model file. A name that is new begins with it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != MODEL_FILE:
        raise HTTPException(415, f"Send the model file with the header Content-Type: {MODEL_FILE} (got {kind[:80]!r}).")
    data = await request.body()
    other = await run_in_threadpool(loads, data, name="The file")
    await asyncio.wrap_future(desk.merge(name, other))
    return await _summary(desk, name)


@files.get(
    "/{name}/file",
    tags=["models"],
    response_class=Response,
    responses={**refusals(404), 200: {"content": {MODEL_FILE: {"schema": {"type": "string", "format": "binary"}}}}},
)
def download(desk: TheDesk, name: Name) -> Response:
    """Download the model as a file that `everlearn.load` reads."""
    desk.entry(name)
    headers = {"Content-Disposition": f'attachment; filename="{name}.evl"'}
    return Response(desk.store.model_bytes(name), media_type=MODEL_FILE, headers=headers)


# -- asking ----------------------------------------------------------------------------------------


@models.post("/{name}/score", tags=["asking"], responses=refusals(404, 409))
def score(desk: TheDesk, name: Name, body: bodies.Rows) -> bodies.Scores:
    """Say how likely rows are, without learning them."""
    _check_size(desk, body)
    model = desk.model(name)
    X = answers.arranged(body.rows, body.columns, desk.columns(name))
    return bodies.Scores(**answers.scores(model, X))


@models.post("/{name}/predict", tags=["asking"], responses=refusals(404, 409))
def predict(desk: TheDesk, name: Name, body: bodies.Prediction) -> bodies.Predictions | bodies.Classes:
    """Predict columns from known values of others: mean, standard deviation and interval.

    A regressor predicts its target in the same way, and a classifier gives the probabilities of the classes; they need
    no `target`.
    """
    if len(body.given) > desk.limits.rows:
        raise InputError(f"given has {len(body.given):,} entries; at most {desk.limits.rows:,} are taken at once.")
    return answers.predictions(_asked(desk, name), body.given, body.target, body.coverage)


@models.post("/{name}/condition", tags=["asking"], responses=refusals(404, 409))
def condition(desk: TheDesk, name: Name, body: bodies.Question) -> bodies.Density:
    """Give the whole distribution of a column once others are known."""
    return bodies.Density(**answers.density(_asked(desk, name), body.given, body.target, body.coverage))


@models.post("/{name}/sample", tags=["asking"], responses=refusals(404, 409))
def sample(desk: TheDesk, name: Name, body: bodies.Draw) -> bodies.Drawn:
    """Draw rows from the model, those columns fixed that are given."""
    if body.n_rows > desk.limits.rows:
        raise InputError(f"n_rows is {body.n_rows:,}; at most {desk.limits.rows:,} are drawn at once.")
    return bodies.Drawn(**answers.drawn(_asked(desk, name), body.n_rows, body.given))


# -- watching --------------------------------------------------------------------------------------


@models.get(
    "/{name}/events",
    tags=["watching"],
    response_class=StreamingResponse,
    responses={**refusals(404), 200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    request: Request,
    desk: TheDesk,
    name: Name,
    after: Annotated[int, Query(ge=0, le=2**62, description="Send events with larger ids.")] = 0,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**62, description="The same, from a browser.")] = None,
) -> StreamingResponse:
    """Follow a model as server-sent events: `novelty`, `change`, what happens to the program, and `progress`."""
    await run_in_threadpool(desk.entry, name)
    feeds: Feeds = request.app.state.feeds
    feeds.check_room()
    stream: AsyncIterator[str] = feeds.stream(name, after if last_event_id is None else last_event_id)
    return StreamingResponse(stream, media_type="text/event-stream")


@models.get("/{name}/pictures/{picture}", tags=["watching"], responses=refusals(404, 409))
def draw(
    desk: TheDesk,
    name: Name,
    picture: Drawing,
    x: Annotated[str | None, Query(max_length=200, description="Column of the first axis of `components`.")] = None,
    y: Annotated[str | None, Query(max_length=200, description="Column of the second.")] = None,
) -> bodies.Picture:
    """Draw a model or its run, as a figure for plotly.js."""
    desk.entry(name)
    if picture in ("components", "weights"):
        if (x is None) != (y is None):
            raise InputError("Give both x and y, or none of them for the principal axes.")
        model = _asked(desk, name)
        axes = None if x is None or y is None else [x, y]
        return bodies.Picture(**(pictures.weights(model) if picture == "weights" else pictures.components(model, axes)))
    history = desk.store.history(name)
    if picture == "likelihood":
        marks = desk.store.latest_events(name, kinds=["change", "novelty"])
        return bodies.Picture(**pictures.likelihood(history, marks))
    return bodies.Picture(**(pictures.forgetting if picture == "forgetting" else pictures.throughput)(history))


@models.post("/{name}/pictures/density", tags=["watching"], responses=refusals(404, 409))
def draw_density(desk: TheDesk, name: Name, body: bodies.Question) -> bodies.Picture:
    """Draw the distribution of a column once others are known."""
    model = _asked(desk, name)
    given = answers.known(model, body.given)
    return bodies.Picture(**pictures.density(model, given, body.target, coverage=body.coverage))


# -- the service -----------------------------------------------------------------------------------


@about.get("/health", tags=["service"], responses={503: {"model": bodies.Health}})
def health(desk: TheDesk, response: Response) -> bodies.Health:
    """Say whether the service learns; 503 while a full or failing disk stops it."""
    if desk.writer.trouble is not None or not desk.writer.is_alive():
        response.status_code = 503
        return bodies.Health(status="trouble", trouble=desk.writer.trouble or "the writer has stopped")
    return bodies.Health(status="ok")


@about.get("/metrics", tags=["service"], response_class=PlainTextResponse, responses=refusals())
def metrics(request: Request, desk: TheDesk) -> PlainTextResponse:
    """Counts for Prometheus."""
    text = exposition(desk, request.app.state.requests)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


# -- what addresses share --------------------------------------------------------------------------


async def _summary(desk: Desk, name: str) -> bodies.Summary:
    return bodies.Summary(**await run_in_threadpool(answers.summary, desk, name))


def _asked(desk: Desk, name: str) -> Any:
    model = desk.model(name)
    model._check_started()
    return model


def _check_size(desk: Desk, body: bodies.Rows) -> None:
    if len(body.rows) > desk.limits.rows:
        raise InputError(f"There are {len(body.rows):,} rows; at most {desk.limits.rows:,} are taken at once.")
    _check_width(desk, body.columns or body.rows[0])


def _check_width(desk: Desk, columns: list[Any]) -> None:
    if len(columns) > desk.limits.columns:
        raise InputError(f"There are {len(columns):,} columns; a model may have at most {desk.limits.columns:,}.")
