"""What requests and answers hold. A missing value is null; NaN and infinity are not JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Column = Annotated[str, Field(min_length=1, max_length=200, strict=True)]
Columns = Annotated[list[Column], Field(fail_fast=True, min_length=1)]
Row = Annotated[list[Finite | None], Field(fail_fast=True, min_length=1)]
Given = Annotated[dict[str, Finite | None], Field(description="Known values by column; null is not known.")]
Coverage = Annotated[float, Field(gt=0.0, lt=1.0, strict=True)]

_COLUMNS = ["rpm", "torque", "temperature"]
_ROWS = [[900, 21.5, 48.2], [905, None, 48.3]]


class Body(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Rows(Body):
    """Rows of numbers. `columns` says their order; without it they are in the order of the model."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"columns": _COLUMNS, "rows": _ROWS}]})

    columns: Columns | None = None
    rows: Annotated[list[Row], Field(fail_fast=True, min_length=1)]


class NewModel(Body):
    """A model to be made: its class, the parameters of its constructor, and its columns."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"kind": "IncrementalGaussianMixture", "parameters": {"forgetting": "adaptive"}, "columns": _COLUMNS}
            ]
        },
    )

    kind: Literal["IncrementalGaussianMixture", "OnlinePPCA", "VariationalPPCA"] = "IncrementalGaussianMixture"
    parameters: Annotated[dict[str, Any], Field(max_length=40)] = {}
    columns: Columns


class Prediction(Body):
    """Columns to predict for each of several sets of known values; no `target` for a classifier or regressor."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"given": [{"rpm": 900}, {"rpm": 1500, "torque": 40}], "target": ["temperature"]}]
        },
    )

    given: Annotated[list[Given], Field(fail_fast=True, min_length=1)]
    target: Columns | None = None
    coverage: Coverage = 0.9


class Question(Body):
    """One column to ask for, once others are known."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"given": {"rpm": 900}, "target": "torque", "coverage": 0.9}]}
    )

    given: Given = {}
    target: Column
    coverage: Coverage = 0.9


class Draw(Body):
    """Rows to be drawn from the model."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"n_rows": 3, "given": {"rpm": 900}}]})

    n_rows: Annotated[int, Field(ge=1, strict=True)] = 1
    given: Given = {}


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
    """Log-density of each row, and its p-value, small for a novelty, where the model has one."""

    log_density: list[float | None]
    p_value: list[float | None] | None


class Predictions(BaseModel):
    """Mean, standard deviation and central interval of each target column, one row for each set of known values."""

    columns: list[str]
    mean: list[list[float | None]]
    std: list[list[float | None]]
    low: list[list[float | None]]
    high: list[list[float | None]]


class Classes(BaseModel):
    """The most probable class for each set of known values, and the probability of each of the `classes`."""

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
    """What a model is and has seen."""

    name: str
    kind: str
    version: int
    rows: int
    waiting: int
    updated: float
    takes_rows: bool
    components: int | None
    log_likelihood: float | None
    rows_per_second: float | None
    forgetting: float | None
    memory: float | None
    novelties: int
    changes: int
    bad_rows: int
    trouble: str | None
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
