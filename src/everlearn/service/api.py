"""The addresses of the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sized
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool

from everlearn import __version__
from everlearn.errors import EverlearnError, InputError
from everlearn.persistence.model_file import FORMAT_VERSION, loads
from everlearn.reporting import figures
from everlearn.reporting.queries import column_names, score_of
from everlearn.service import responses, schemas
from everlearn.service.errors import FULL
from everlearn.service.events import EventStreams
from everlearn.service.metrics import Metrics
from everlearn.service.questions import Budget, Questions
from everlearn.service.repository import ModelRepository, RowShape

MODEL_FILE = "application/octet-stream"

Name = Annotated[
    str, Path(pattern=schemas.NAME_PATTERN, description="Name of a model: letters, digits, dots, dashes, underscores.")
]
KnownName = Annotated[
    str, Path(pattern=schemas.KNOWN_NAME_PATTERN, description="Name of a model of the state file, such as of a device.")
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


def repository_of(request: Request) -> ModelRepository:
    """The models of the application."""
    repository: ModelRepository = request.app.state.repository
    return repository


def questions_of(request: Request) -> Questions:
    """The threads that answer questions."""
    questions: Questions = request.app.state.questions
    return questions


async def json_only(request: Request) -> None:
    """Bodies are JSON and say so, which a page of another origin cannot do without being asked first."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # A form of another site can send text/plain without a preflight, but not application/json.
    if request.method in ("POST", "PUT") and kind != "application/json":
        raise HTTPException(415, f"Send JSON with the header Content-Type: application/json (got {kind[:80]!r}).")


Repository = Annotated[ModelRepository, Depends(repository_of)]
Ask = Annotated[Questions, Depends(questions_of)]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How an address may refuse, for the description of the service."""
    everywhere = (400, 401, 403, 408, 413, 415, 421, 422, 429, 503, 507)
    return {status: {"model": schemas.Refusal} for status in sorted({*everywhere, *statuses})}


models = APIRouter(prefix="/models", dependencies=[Depends(json_only)])
files = APIRouter(prefix="/models")
about = APIRouter()


# -- models ----------------------------------------------------------------------------------------


@models.get("", tags=["models"], responses=refusals())
def list_models(
    repository: Repository,
    after: Annotated[str, Query(max_length=200, description="List models whose names sort behind this one.")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="How many models to list at most.")] = 1000,
) -> schemas.Listing:
    """List models by name; `next` is the value of `after` for the rest, null at the end."""
    found = repository.store.models(after=after, limit=limit + 1)
    listed = [
        schemas.Listed(name=e.name, kind=e.kind, version=e.version, rows=e.n_rows, bytes=e.bytes, updated=e.updated)
        for e in found[:limit]
    ]
    return schemas.Listing(
        models=listed, n_models=repository.store.n_models(), next=listed[-1].name if len(found) > limit else None
    )


@models.put("/{name}", tags=["models"], status_code=201, response_model=schemas.Summary, responses=refusals(409))
async def create_model(
    request: Request, ask: Ask, repository: Repository, name: Name, body: schemas.NewModel
) -> Response:
    """Make a model with parameters of its own.

    Rows sent to a name that is new make one with the usual parameters.
    """
    _check_width(repository, body.columns)
    responses.check_distinct(body.columns)
    done = await run_in_threadpool(repository.create, name, body.kind, body.parameters, body.columns, body.target)
    await asyncio.wrap_future(done)
    response = await ask.ask(request, lambda budget: responses.summary(repository, name))
    response.status_code = 201
    return response


@models.get("/{name}", tags=["models"], response_model=schemas.Summary, responses=refusals(404))
async def show_model(request: Request, ask: Ask, repository: Repository, name: KnownName) -> Response:
    """Summarise a model and its run."""
    return await ask.ask(request, lambda budget: responses.summary(repository, name))


@models.delete("/{name}", tags=["models"], status_code=204, responses=refusals(404, 409))
async def delete_model(repository: Repository, name: Name) -> None:
    """Forget a model, its history and the rows that wait for it."""
    await asyncio.wrap_future(repository.delete(name))


@models.get("/{name}/history", tags=["models"], responses=refusals(404))
def show_history(
    repository: Repository, name: KnownName, limit: Annotated[int, Query(ge=1, le=4096)] = 1000
) -> schemas.History:
    """Show the run so far as intervals of rows, joined to at most `limit` of them."""
    repository.entry(name)
    points = [
        {key: responses.finite(value) if isinstance(value, float) else value for key, value in point._asdict().items()}
        for point in repository.store.history(name, limit=limit)
    ]
    return schemas.History.model_validate({"intervals": points})


# -- learning --------------------------------------------------------------------------------------


@models.post("/{name}/learn", tags=["learning"], status_code=202, responses=refusals(404, 409))
async def learn(repository: Repository, name: Name, body: schemas.TaughtRows, key: Key = None) -> schemas.Accepted:
    """Send rows to be learned.

    They are on the disk when the answer comes, and are learned once, soon after, in the order of the responses. A name
    that is new makes a Gaussian mixture with these columns; other models are made with PUT. A classifier or regressor
    takes what it should predict in `targets`.
    """
    _check_size(repository, body)
    # From memory in the event loop; only an unknown name costs a thread.
    shape = repository.known_shape(name) or await run_in_threadpool(_shape_for_rows, repository, name, body)
    X = responses.arranged(body.rows, body.columns, shape.columns)
    kind = responses.check_targets(body.targets, len(X), shape)
    if kind is not None and shape.labels is None:
        shape = await asyncio.wrap_future(repository.fix_labels(name, kind))
        responses.check_targets(body.targets, len(X), shape)  # another request may have been quicker
    # The answer waits for the flush of the disk: 202 means that no crash can lose the rows.
    batch = await asyncio.wrap_future(repository.put(name, X, key, body.targets))
    return schemas.Accepted(accepted=len(X), batch=batch, columns=shape.columns)


def _shape_for_rows(repository: ModelRepository, name: str, body: schemas.TaughtRows) -> RowShape:
    """What rows for a model look like; a name that is new becomes a mixture."""
    if repository.store.entry(name) is None:
        if body.targets is not None:
            raise InputError(
                f"There is no model {name!r} that learns targets. Make a classifier or a regressor with PUT "
                f"/models/{name} first."
            )
        columns = responses.columns_of(body.rows, body.columns)
        responses.check_distinct(columns)
        _check_width(repository, columns)
        responses.arranged(body.rows, body.columns, columns)
        repository.ensure(name, columns).result()
    return repository.row_shape(name)


@files.post(
    "/{name}/merge",
    tags=["learning"],
    response_model=schemas.Summary,
    responses=refusals(409),
    openapi_extra={
        "requestBody": {"required": True, "content": {MODEL_FILE: {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def merge(ask: Ask, repository: Repository, name: Name, request: Request) -> Response:
    """Merge a model learned elsewhere: the body is a model file. A name that is new begins with it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != MODEL_FILE:
        raise HTTPException(415, f"Send the model file with the header Content-Type: {MODEL_FILE} (got {kind[:80]!r}).")
    data = await request.body()
    # Read as any file from a stranger, before the model that it is to be merged with is touched.
    other = await run_in_threadpool(loads, data, name="The file")
    await asyncio.wrap_future(repository.merge(name, other))
    return await ask.ask(request, lambda budget: responses.summary(repository, name))


@files.get(
    "/{name}/file",
    tags=["models"],
    response_class=Response,
    responses={**refusals(404), 200: {"content": {MODEL_FILE: {"schema": {"type": "string", "format": "binary"}}}}},
)
def download(repository: Repository, name: Name) -> Response:
    """Download the model as a file that `everlearn.load` reads."""
    repository.entry(name)
    headers = {"Content-Disposition": f'attachment; filename="{name}.evl"'}
    return Response(repository.store.model_bytes(name), media_type=MODEL_FILE, headers=headers)


# -- asking ----------------------------------------------------------------------------------------


@models.post("/{name}/score", tags=["asking"], response_model=schemas.Scores, responses=refusals(404, 409))
async def score(
    request: Request, ask: Ask, repository: Repository, name: KnownName, body: schemas.ScoredRows
) -> Response:
    """Say how likely rows are, without learning them; a detector also says which column is to blame."""
    _check_size(repository, body)

    def answer(budget: Budget) -> schemas.Scores:
        model = repository.model(name)
        X = responses.arranged(body.rows, body.columns, repository.columns(name))
        return responses.scores(budget, model, X, body.alarm)

    return await ask.ask(request, answer)


@models.post(
    "/{name}/predict",
    tags=["asking"],
    response_model=schemas.Predictions | schemas.Classes,
    responses=refusals(404, 409),
)
async def predict(
    request: Request, ask: Ask, repository: Repository, name: KnownName, body: schemas.Prediction
) -> Response:
    """Predict columns from known values of others: mean, standard deviation and interval, for each row.

    A regressor predicts its target in the same way, and a classifier gives the probabilities of the classes; they need
    no `target`.
    """
    _check_size(repository, body)

    def answer(budget: Budget) -> schemas.Predictions | schemas.Classes:
        model = _fitted(repository, name)
        X = responses.arranged(body.rows, body.columns, column_names(model), some=True)
        return responses.predictions(budget, model, X, body.target, body.coverage, repository.target(name))

    return await ask.ask(request, answer)


@models.post("/{name}/condition", tags=["asking"], response_model=schemas.Density, responses=refusals(404, 409))
async def condition(
    request: Request, ask: Ask, repository: Repository, name: KnownName, body: schemas.Question
) -> Response:
    """Give the whole distribution of a column once others are known."""
    return await ask.ask(
        request,
        lambda budget: responses.density(_fitted(repository, name), body),
    )


@models.post("/{name}/sample", tags=["asking"], response_model=schemas.Drawn, responses=refusals(404, 409))
async def sample(request: Request, ask: Ask, repository: Repository, name: KnownName, body: schemas.Draw) -> Response:
    """Draw rows from the model, those columns fixed that are given."""
    if body.n_rows > repository.limits.rows:
        raise InputError(f"n_rows is {body.n_rows:,}; at most {repository.limits.rows:,} are drawn at once.")
    return await ask.ask(request, lambda budget: responses.draws(budget, _fitted(repository, name), body))


# -- watching --------------------------------------------------------------------------------------


@models.get(
    "/{name}/events",
    tags=["watching"],
    response_class=StreamingResponse,
    responses={**refusals(404), 200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    request: Request,
    repository: Repository,
    name: KnownName,
    after: Annotated[int, Query(ge=0, le=2**62, description="Send events with larger ids.")] = 0,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**62, description="The same, from a browser.")] = None,
) -> StreamingResponse:
    """Follow a model as server-sent events: `novelty`, `change`, what happens to the program, and `progress`.

    A detector has `anomaly`, from `row` to `last`, with its p-value in `value`, the `column` to blame and why in
    `text`, and `new_normal`. An anomaly that goes on is sent again, with the same `row` and a new id.
    """
    await run_in_threadpool(repository.entry, name)
    streams: EventStreams = request.app.state.streams
    streams.check_room()
    stream: AsyncIterator[str] = streams.stream(name, after if last_event_id is None else last_event_id)
    return StreamingResponse(stream, media_type="text/event-stream")


@models.get(
    "/{name}/pictures/{picture}", tags=["watching"], response_model=schemas.Figure, responses=refusals(404, 409)
)
async def draw(
    request: Request,
    ask: Ask,
    repository: Repository,
    name: KnownName,
    picture: Drawing,
    x: Annotated[str | None, Query(max_length=200, description="Column of the first axis of `components`.")] = None,
    y: Annotated[str | None, Query(max_length=200, description="Column of the second.")] = None,
) -> Response:
    """Draw a model or its run, as a figure for plotly.js."""
    if (x is None) != (y is None):
        raise InputError("Give both x and y, or none of them for the principal axes.")

    def answer(budget: Budget) -> schemas.Figure:
        repository.entry(name)
        if picture == "weights":
            return schemas.Figure(**figures.weights(_fitted(repository, name)))
        if picture == "components":
            return schemas.Figure(
                **figures.components(_fitted(repository, name), None if x is None or y is None else [x, y])
            )
        history = repository.store.history(name)
        if picture == "likelihood":
            marks = repository.store.latest_events(name, kinds=["change", "novelty", "anomaly", "new_normal"])
            return schemas.Figure(**figures.likelihood(history, marks, score=score_of(repository.model(name))))
        return schemas.Figure(**(figures.forgetting if picture == "forgetting" else figures.throughput)(history))

    return await ask.ask(request, answer)


@models.post("/{name}/pictures/density", tags=["watching"], response_model=schemas.Figure, responses=refusals(404, 409))
async def draw_density(
    request: Request, ask: Ask, repository: Repository, name: KnownName, body: schemas.Question
) -> Response:
    """Draw the distribution of a column once others are known."""

    def answer(budget: Budget) -> schemas.Figure:
        model = _fitted(repository, name)
        given = responses.known_values(model, body)
        return schemas.Figure(**figures.density(model, given, body.target, coverage=body.coverage))

    return await ask.ask(request, answer)


# -- the service -----------------------------------------------------------------------------------


@about.get("/health", tags=["service"], responses={503: {"model": schemas.Health}})
def health(repository: Repository, response: Response) -> schemas.Health:
    """Say whether the service learns; 503 while something stops it, or rows wait for too long.

    It needs no token, so that it names no model and no file; the log and the summary of a model do.
    """
    trouble = _trouble(repository)
    if trouble is None:
        return schemas.Health(status="ok")
    response.status_code = 503
    return schemas.Health(status="trouble", trouble=trouble)


def _trouble(repository: ModelRepository) -> str | None:
    learning = repository.learning
    if not learning.is_alive():
        return "Learning has stopped. Restart the service."
    failures = list(learning.troubles.values())
    if any(isinstance(error, OSError) for error in failures):
        full = any(isinstance(error, OSError) and error.errno in FULL for error in failures)
        return "The disk is full." if full else "The state file cannot be written."
    if failures:
        return f"{len(failures)} of the models cannot be learned; the log says which and why. The others are."
    stall = learning.longest_stall()
    if stall > repository.limits.stall_seconds:
        return f"Rows have waited for {stall:.0f} s and none of their model was learned meanwhile."
    return None


@about.get("/livez", tags=["service"])
async def livez() -> schemas.Health:
    """Say that the process answers; if it does not, restart it."""
    return schemas.Health(status="ok")


@about.get("/readyz", tags=["service"], responses={503: {"model": schemas.Health}})
def readyz(repository: Repository, response: Response) -> schemas.Health:
    """Say whether requests should be sent here: the state file can be read, and learning goes on."""
    try:
        repository.store.latest_batch()
    except (EverlearnError, OSError):
        response.status_code = 503
        return schemas.Health(status="trouble", trouble="The state file cannot be read.")
    return health(repository, response)


@about.get("/version", tags=["service"])
async def version() -> schemas.Version:
    """Say which program this is."""
    return schemas.Version(everlearn=__version__, file_format=FORMAT_VERSION)


@about.get("/metrics", tags=["service"], response_class=PlainTextResponse, responses=refusals())
def metrics(request: Request, repository: Repository) -> PlainTextResponse:
    """Counts for Prometheus."""
    counts: Metrics = request.app.state.metrics
    return PlainTextResponse(counts.text(repository), media_type=CONTENT_TYPE_LATEST)


# -- what addresses share --------------------------------------------------------------------------


def _fitted(repository: ModelRepository, name: str) -> Any:
    model = repository.model(name)
    model._check_started()
    return model


def _check_size(repository: ModelRepository, body: schemas.Rows) -> None:
    if len(body.rows) > repository.limits.rows:
        raise InputError(f"There are {len(body.rows):,} rows; at most {repository.limits.rows:,} are taken at once.")
    _check_width(repository, body.columns or body.rows[0])


def _check_width(repository: ModelRepository, columns: Sized) -> None:
    if len(columns) > repository.limits.columns:
        raise InputError(f"There are {len(columns):,} columns; a model may have at most {repository.limits.columns:,}.")
