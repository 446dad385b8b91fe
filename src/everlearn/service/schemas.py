"""What requests and answers hold. A missing value is null; NaN and infinity are not JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, Tag

NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# Watchers are named by people and devices: "pump 3".
KNOWN_NAME_PATTERN = r"^[^/\x00-\x1f\x7f]{1,200}$"

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Column = Annotated[str, Field(min_length=1, max_length=200, strict=True)]
Columns = Annotated[list[Column], Field(fail_fast=True, min_length=1)]
Row = Annotated[list[Finite | None], Field(fail_fast=True, min_length=1)]
Record = dict[Column, Finite | None]
Whole = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
Target: TypeAlias = StrictBool | Whole | Finite | Annotated[str, Field(strict=True, min_length=1, max_length=200)]

LISTS, RECORDS = " lists", " records"
"""Marks of the two shapes of rows, which pydantic puts into the places of errors; no column begins so in a message."""
Coverage = Annotated[float, Field(gt=0.0, lt=1.0, strict=True)]

_COLUMNS = ["rpm", "torque", "temperature"]
_ROWS = [[900, 21.5, 48.2], [905, None, 48.3]]


class Body(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


def _shape_of(rows: Any) -> str:
    """The shape of all rows is that of the first."""
    return RECORDS if isinstance(rows, list) and rows and isinstance(rows[0], dict) else LISTS


_SHAPES = Field(
    description="Rows as lists of numbers, in the order of `columns` or else of the model's columns; or as objects "
    "with a number for each column. null, and a column that an object does not have, is a value that is not known."
)
SomeRows = Annotated[
    Annotated[list[Row], Field(fail_fast=True, min_length=1), Tag(LISTS)]
    | Annotated[list[Record], Field(fail_fast=True, min_length=1), Tag(RECORDS)],
    Discriminator(_shape_of),
    _SHAPES,
]
OneRow = Annotated[
    Annotated[list[Row], Field(fail_fast=True, max_length=1), Tag(LISTS)]
    | Annotated[list[Record], Field(fail_fast=True, min_length=1, max_length=1), Tag(RECORDS)],
    Discriminator(_shape_of),
    _SHAPES,
]


class Rows(Body):
    """Rows of numbers, as every request that has rows gives them."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"columns": _COLUMNS, "rows": _ROWS},
                {"rows": [{"rpm": 900, "torque": 21.5, "temperature": 48.2}, {"rpm": 905, "temperature": 48.3}]},
            ]
        },
    )

    columns: Columns | None = None
    rows: SomeRows


class TaughtRows(Rows):
    """Rows to be learned; for a classifier or regressor with the label or number that belongs to each."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"columns": _COLUMNS, "rows": _ROWS},
                {"columns": _COLUMNS, "rows": _ROWS, "targets": ["good", "worn"]},
            ]
        },
    )

    targets: Annotated[list[Target], Field(fail_fast=True, min_length=1)] | None = None


class ScoredRows(Rows):
    """Rows to be scored, in their order."""

    alarm: Annotated[float, Field(gt=0.0, lt=1.0, strict=True)] | None = Field(
        None, description="p-value below which a detector names the column to blame; its own rate by default."
    )


class NewModel(Body):
    """A model to be made: its class, the parameters of its constructor, and its columns."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"kind": "IncrementalGaussianMixture", "parameters": {"forgetting": "adaptive"}, "columns": _COLUMNS},
                {"kind": "IncrementalGaussianMixtureClassifier", "columns": _COLUMNS, "target": "state"},
            ]
        },
    )

    kind: Literal[
        "IncrementalGaussianMixture",
        "IncrementalGaussianMixtureClassifier",
        "IncrementalGaussianMixtureRegressor",
        "AnomalyDetector",
        "OnlinePPCA",
        "VariationalPPCA",
    ] = "IncrementalGaussianMixture"
    parameters: Annotated[dict[str, Any], Field(max_length=40)] = {}
    columns: Columns
    target: Column | None = Field(None, description="Name of what a classifier or regressor predicts.")


class Prediction(Rows):
    """Columns to predict from what is known of each row; no `target` for a classifier or regressor.

    `columns` may name some of the model's columns only.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"rows": [{"rpm": 900}, {"rpm": 1500, "torque": 40}], "target": ["temperature"]},
                {"columns": ["rpm", "torque"], "rows": [[900, None], [1500, 40]], "target": ["temperature"]},
            ]
        },
    )

    target: Columns | None = None
    coverage: Coverage = 0.9


class Known(Body):
    """One row at most, with what is known."""

    columns: Columns | None = None
    rows: OneRow = []


class Question(Known):
    """One column to ask for, once others are known."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"rows": [{"rpm": 900}], "target": "torque", "coverage": 0.9}]}
    )

    target: Column
    coverage: Coverage = 0.9


class Draw(Known):
    """Rows to be drawn from the model, with the known values of the row that is given."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"n_rows": 3, "rows": [{"rpm": 900}]}]})

    n_rows: Annotated[int, Field(ge=1, strict=True)] = 1


# -- answers ---------------------------------------------------------------------------------------


class Refusal(BaseModel):
    """Why a request was refused."""

    detail: str


class Accepted(BaseModel):
    """Rows that are on the disk, and will be learned."""

    accepted: int
    batch: int
    columns: list[str]


class Scores(BaseModel):
    """Log-density of each row, and its p-value, small for a novelty, where the model has one.

    An anomaly detector gives a `score`, the logarithm of its p-value, in place of the density, and for rows below
    `alarm` the column to blame, its value, and the interval in which it was expected.
    """

    log_density: list[float | None] | None = None
    p_value: list[float | None] | None = None
    score: list[float | None] | None = None
    column: list[str | None] | None = None
    value: list[float | None] | None = None
    low: list[float | None] | None = None
    high: list[float | None] | None = None


class Predictions(BaseModel):
    """Mean, standard deviation and central interval of each target column, one row for each row of the request."""

    columns: list[str]
    mean: list[list[float | None]]
    std: list[list[float | None]]
    low: list[list[float | None]]
    high: list[list[float | None]]


class Classes(BaseModel):
    """The most probable class for each row, and the probability of each of the `classes`."""

    classes: list[bool | int | float | str]
    label: list[bool | int | float | str]
    probability: list[list[float | None]]


class Density(BaseModel):
    """Distribution of a column: density along x, mean, standard deviation and central interval."""

    column: str
    x: list[float | None]
    density: list[float | None]
    mean: float | None
    std: float | None
    low: float | None
    high: float | None
    coverage: float


class Drawn(BaseModel):
    """Rows drawn from the model."""

    columns: list[str]
    rows: list[list[float | None]]


class ColumnSummary(BaseModel):
    """A column as the model knows it."""

    name: str
    mean: float | None
    std: float | None


class Summary(BaseModel):
    """What a model is and has seen.

    A detector has a `mean_log_p_value` in place of the `log_likelihood`; `novelties` counts its anomalies, and
    `changes` what became a new normal.
    """

    name: str
    kind: str
    version: int
    rows: int
    waiting: int
    updated: float
    takes_rows: bool
    components: int | None
    log_likelihood: float | None
    mean_log_p_value: float | None
    rows_per_second: float | None
    forgetting: float | None
    memory: float | None
    novelties: int
    changes: int
    bad_rows: int
    trouble: str | None
    target: str | None
    columns: list[ColumnSummary]


class Listed(BaseModel):
    """A model in the list of all."""

    name: str
    kind: str
    version: int
    rows: int
    bytes: int
    updated: float


class Listing(BaseModel):
    """Models of the service, by name; `next` names the last of them if there are more behind it."""

    models: list[Listed]
    n_models: int
    next: str | None


class Point(BaseModel):
    """An interval of the run."""

    end_row: int
    n_rows: int
    time: float
    seconds: float
    log_likelihood: float | None
    n_components: float | None
    forgetting: float | None
    memory: float | None
    n_novel: int
    n_changes: int
    n_scored: int


class History(BaseModel):
    """The run so far, oldest first."""

    intervals: list[Point]


class Figure(BaseModel):
    """A figure for plotly.js."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]


class Health(BaseModel):
    """Whether the service learns; `trouble` says why it does not."""

    status: Literal["ok", "trouble"]
    trouble: str | None = None


class Version(BaseModel):
    """Which program this is, and which model files it reads and writes."""

    everlearn: str
    file_format: int
