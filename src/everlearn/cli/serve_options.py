"""The options of `everlearn serve` that set the limits of the service: one for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

from everlearn.service.settings import MIB, Limits

F = TypeVar("F", bound=Callable[..., Any])


class LimitOption(NamedTuple):
    """An option, the field of `Limits` that it sets, and the unit that it is given in."""

    option: str
    field: str
    help: str
    unit: int = 1


LIMIT_OPTIONS = (
    LimitOption("--rate", "requests_per_second", "Requests per second from one address, or a token without a rate."),
    LimitOption("--max-body-mib", "body_bytes", "Largest request.", MIB),
    LimitOption("--max-model-mib", "model_bytes", "Largest model file that is uploaded.", MIB),
    LimitOption("--max-rows", "rows", "Rows of one request."),
    LimitOption("--max-columns", "columns", "Columns of a model."),
    LimitOption("--max-models", "models", "Models in the state file."),
    LimitOption("--models-in-memory", "models_in_memory", "Models kept in memory for learning, as many for questions."),
    LimitOption("--memory-mib", "memory_bytes", "Sizes, as files, of the models kept in memory.", MIB),
    LimitOption("--metrics-models", "metrics_models", "Models up to which /metrics tells of each."),
    LimitOption("--max-waiting", "waiting_values", "Values that wait to be learned, over all models."),
    LimitOption("--max-streams", "streams", "Event streams open at once."),
    LimitOption("--body-seconds", "body_seconds", "Time to send the body of a request."),
    LimitOption("--header-seconds", "header_seconds", "Time to begin a request."),
    LimitOption("--connections", "connections", "Connections open at once."),
    LimitOption("--connections-per-address", "connections_per_address", "Of one address; trusted proxies are free."),
    LimitOption("--questions", "questions", "Questions worked on at once."),
    LimitOption("--waiting-questions", "waiting_questions", "Questions that wait for it."),
    LimitOption("--question-seconds", "question_seconds", "Time to work on one question."),
    LimitOption("--max-answer", "answer_values", "Numbers of one answer."),
    LimitOption("--stall-seconds", "stall_seconds", "Time that rows may wait before /health says so."),
)


def limit_options(command: F) -> F:
    """Give a command all options for limits, each with a variable of the environment: EVERLEARN_MAX_ROWS."""
    defaults = Limits()
    for option, field, text, unit in reversed(LIMIT_OPTIONS):
        default = getattr(defaults, field)
        kind: Any = click.IntRange(1) if isinstance(default, int) else click.FloatRange(0.0, min_open=True)
        variable = f"EVERLEARN_{option.strip('-').replace('-', '_').upper()}"
        shown = default // unit if isinstance(default, int) else default
        add = click.option(option, field, default=shown, type=kind, help=text, show_default=True, envvar=variable)
        command = add(command)
    return command


def chosen_limits(options: dict[str, Any]) -> Limits:
    """Take the limits out of the options of a command."""
    units = {option.field: option.unit for option in LIMIT_OPTIONS}
    return Limits(**{field.name: options.pop(field.name) * units[field.name] for field in dataclasses.fields(Limits)})
