"""What a run says at its end."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from everlearn.base.saved_model import SavedDetector, SavedFactors, SavedModel
from everlearn.cli.common import suggest_next
from everlearn.reporting.tables import Table, count, number
from everlearn.typing import DetectingModel

if TYPE_CHECKING:
    from everlearn.streams.session import Session

_SHOWN_COMPONENTS = 6
_SHOWN_COLUMNS = 6
_SHOWN_ANOMALIES = 8
_SHOWN_NAMES = 20

Array = NDArray[np.float64]


def show_bad_rows(session: Session, console: Console) -> None:
    """Say how many rows were left out over the whole run, and where to find them."""
    counts = {what: n for what, n in session.store.totals(session.name).items() if what.startswith("bad: ")}
    if not counts:
        return
    first: dict[str, str] = {}
    for row in session.store.bad_rows(session.name, limit=10_000):
        first.setdefault(f"bad: {row.reason}", row.place)
    for what, n in counts.items():
        where = f" (first at {escape(first[what])})" if what in first else ""
        console.print(f"[yellow]Rows left out: {n:,} with {escape(what[5:])}{where}.[/]", soft_wrap=True)


def show_summary(session: Session, console: Console) -> None:
    """The columns as the model knows them, and its parts."""
    model, monitor = session.model, session.monitor
    names = session.columns or [f"column{i}" for i in range(model.n_features_in_)]
    moments = moments_of(model)
    rows: list[tuple[str, ...]] = []
    for i, (name, n_gaps) in enumerate(itertools.islice(zip(names, monitor.n_gaps, strict=True), _SHOWN_NAMES)):
        values = () if moments is None else (number(moments[0][i]), number(moments[1][i]))
        rows.append((name, *values, f"{n_gaps / monitor.n_rows:.1%}"))
    title = f"{count(len(names), 'column')}, {count(monitor.n_rows, 'row')}"
    # A classifier or a regressor knows no moments of its columns.
    known = () if moments is None else ("mean", "std")
    Table(("column", *known, "gaps"), rows, title).show(console)
    if len(names) > _SHOWN_NAMES:
        console.print(f"and {len(names) - _SHOWN_NAMES} columns more")
    show_parts(model, names, console)


def moments_of(model: Any) -> tuple[Array, Array] | None:
    """Mean and standard deviation of each column; None for a model of something else, or of too few rows."""
    if isinstance(model, SavedDetector):
        return moments_of(model.mixture_)
    if isinstance(model, DetectingModel):
        return moments_of_detector(model)
    if isinstance(model, SavedFactors) or getattr(model, "covariance_type_", "") == "low_rank":
        return model._column_moments()  # type: ignore[no-any-return]
    if hasattr(type(model), "weights_"):
        weights, means, covariances = model.weights_, model.means_, model.covariances_
        variances = covariances if covariances.ndim == 2 else np.diagonal(covariances, axis1=1, axis2=2)
        centre = weights @ means
        return centre, np.sqrt(weights @ (variances + (means - centre) ** 2))
    if hasattr(type(model), "mean_"):
        return model.mean_, np.sqrt(np.diagonal(model.get_covariance()))
    return None


def moments_of_detector(detector: Any) -> tuple[Array, Array] | None:
    """Those of its mixture."""
    from everlearn.reporting.queries import is_fitted  # imports SciPy

    return moments_of(detector.mixture_) if is_fitted(detector) else None


def show_parts(model: Any, names: list[str], console: Console) -> None:
    """The heaviest components of a mixture, the axes of a PCA, or what a detector found strange."""
    shown = names[:_SHOWN_COLUMNS]
    if isinstance(model, DetectingModel | SavedDetector):
        show_anomalies(model, names, console)
        return
    if hasattr(type(model), "weights_"):
        weights, means = model.weights_, model.means_
        heaviest = np.argsort(-weights)[:_SHOWN_COMPONENTS]
        rows = [(f"{weights[k]:.1%}", *(number(means[k, j]) for j in range(len(shown)))) for k in heaviest]
        many = f"Means of the {len(rows)} heaviest of {len(weights)} components"
        title = many if len(weights) > len(rows) else f"Means of the {count(len(weights), 'component')}"
        table = Table(("weight", *shown), rows, title)
    elif hasattr(type(model), "components_"):
        axes = zip(model.explained_variance_ratio_, model.components_, strict=True)
        rows = [(f"{share:.1%}", *(number(axis[j]) for j in range(len(shown)))) for share, axis in axes]
        table = Table(("share of variance", *shown), rows, "Principal axes")
    else:
        name = model.model if isinstance(model, SavedModel) else type(model).__name__
        console.print(f"\n{name} with {count(model.n_components_, 'component')}.")
        return
    table.show(console)


def show_anomalies(model: Any, names: list[str], console: Console) -> None:
    """The strangest of a detector's latest anomalies, with the column to blame, and how many there were."""
    events = model.events_
    found = [event for event in events if event.kind == "anomaly"]
    strangest = sorted(sorted(found, key=lambda event: event.value)[:_SHOWN_ANOMALIES], key=lambda event: event.row)
    rows = [
        (f"{e.row:,}" if e.row == e.last else f"{e.row:,} to {e.last:,}", f"{e.value:.1g}", names[e.column])
        for e in strangest
    ]
    n_accepted = len(events) - len(found)
    times = "once" if n_accepted == 1 else f"{n_accepted:,} times"
    accepted = f" Rows became a new normal {times}." if n_accepted else ""
    held = f"{count(model.n_held_, 'row is', 'rows are')} held back: too strange to be learned."
    Table(("rows", "p-value", "column to blame"), rows, _title_of(len(found), len(rows))).show(console)
    console.print(f"One row in {1 / model.false_alarm_rate:,.0f} would raise a false alarm. {held}{accepted}")


def _title_of(n_found: int, n_shown: int) -> str:
    """Of the table of anomalies."""
    return f"The strangest of {n_found:,} anomalies" if n_found > n_shown else count(n_found, "anomaly", "anomalies")


def suggest(asked: Any, session: Session, console: Console) -> None:
    """Say what to try next."""
    found = []
    if asked.model_file is not None:
        found += _questions(asked.model_file, session)
    if asked.state is not None:
        found.append(("the live page", f"everlearn serve --state {shlex.quote(asked.state)}"))
    if asked.demo:
        found.append(("another machine", "everlearn learn --demo --seed 7"))
        found.append(("your own file", "everlearn learn FILE.csv --model-file FILE.evl"))
    suggest_next(found, console)
    wanting = {"--model-file machine.evl": (asked.model_file, "to keep what was learned"),
               "--report machine.html": (asked.report, "for pictures of the run")}  # fmt: skip
    for option, (given, purpose) in wanting.items():
        if given is None:
            console.print(f"Add [bold]{option}[/] {purpose}.")


def _questions(model_file: str, session: Session) -> list[tuple[str, str]]:
    found = [("what the model knows", f"everlearn show {shlex.quote(model_file)}")]
    names = session.columns or []
    moments = moments_of(session.model)
    if len(names) > 1 and moments is not None and hasattr(session.model, "condition"):
        given = shlex.quote(f"{names[0]}={number(moments[0][0])}")
        question = f"everlearn ask {shlex.quote(model_file)} --given {given} --predict {shlex.quote(names[1])}"
        found.append((f"{names[1]}, where {names[0]} is known", question))
    return found
