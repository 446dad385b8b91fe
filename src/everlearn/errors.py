"""The exceptions and warnings that a user of everlearn can catch."""

from __future__ import annotations

import importlib
from types import ModuleType


class EverlearnError(Exception):
    """The root of every exception that everlearn raises on purpose."""


class InputError(EverlearnError, ValueError):
    """Data or an argument that a model cannot take; the model is as it was before the call."""


class ModelFileError(EverlearnError, ValueError):
    """A file that is not a model file of this version of everlearn, or is damaged or hostile."""


class StateFileError(EverlearnError, ValueError):
    """A state file that is damaged, foreign or of a newer version, or that another program writes to as well."""


class SourceLostError(EverlearnError, ConnectionError):
    """A source or sink that cannot be reached at the moment; a run can go on later from its latest position."""


class MergeError(EverlearnError, ValueError):
    """Models that cannot be merged: other columns, other scales or other parameters."""


class ClusterError(EverlearnError, RuntimeError):
    """A cluster that does not answer, has no workers, or loses too many of them; nothing was learned."""


class ServiceError(EverlearnError, RuntimeError):
    """A service that refuses what a client asks, or cannot be reached.

    Parameters
    ----------
    reason : str
        What is wrong and what to do, in the words of the service.
    status : int, optional
        The HTTP status of the refusal; None if there was no answer.
    request_id : str, optional
        The id of the request, by which the log of the service has it.
    """

    def __init__(self, reason: str, status: int | None = None, request_id: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.request_id = request_id


class MissingExtraError(EverlearnError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class DivergenceWarning(UserWarning):
    """A formula kept as a paper prints it left the region where it is valid."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it.

    Parameters
    ----------
    module : str
        Name of the module to import.
    extra : str
        The extra of everlearn that installs it.

    Returns
    -------
    module
        The imported module.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"This needs the package {module.partition('.')[0]!r}, which is not installed. "
            f"Install it with: pip install 'everlearn[{extra}]'"
        ) from error
