"""What the service allows: its limits, and who may ask."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from everlearn.errors import InputError

MIB = 1 << 20
_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from using up the machine.

    Parameters
    ----------
    body_bytes : int
        Largest body of a request.
    model_bytes : int
        Largest model file that can be uploaded.
    rows, columns : int
        Most rows of a request, and columns of a model.
    models : int
        Most models in the state file.
    waiting_values : int
        Most numbers that wait to be learned, over all models.
    requests_per_second : float
        Most requests of one address a second, on average; bursts may be twice as many.
    streams : int
        Most event streams that are open at once.
    body_seconds : float
        Longest time that a client may take to send a request.
    """

    body_bytes: int = 8 * MIB
    model_bytes: int = 64 * MIB
    rows: int = 50_000
    columns: int = 1024
    models: int = 100
    waiting_values: int = 50_000_000
    requests_per_second: float = 500.0
    streams: int = 100
    body_seconds: float = 30.0


@dataclass(frozen=True)
class Settings:
    """How the service runs.

    Parameters
    ----------
    host, port
        The address to listen on.
    token : str, optional
        What a client must know; an address beyond this machine needs one.
    limits : Limits
        Its bounds.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = field(default=None, repr=False)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < _SHORTEST_TOKEN or not self.token.isascii()):
            raise InputError(
                f"The token has {len(self.token)} characters; it needs at least {_SHORTEST_TOKEN}, all of them ASCII. "
                "Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
        if self.token is None and not is_loopback(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines, so that a token is needed. Write a secret of at "
                f"least {_SHORTEST_TOKEN} characters to a file and name it with --token-file, or set EVERLEARN_TOKEN."
            )


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
