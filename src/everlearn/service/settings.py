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
    models_in_memory : int
        Most models that are kept in memory for learning, and as many for questions; the least recently used leave it.
    memory_bytes : int
        Most bytes, as files, of all models that are kept in memory.
    metrics_models : int
        Most models that have metrics of their own; of more than that, `/metrics` tells the sums only.
    waiting_values : int
        Most numbers that wait to be learned, over all models.
    requests_per_second : float
        Most requests per second from one address, on average; bursts may be twice as many.
    streams : int
        Most event streams that are open at once.
    body_seconds : float
        Longest time that a client may take to send the body of a request.
    header_seconds : float
        Longest time that a connection may take until its next request has begun: idle, or sending headers.
    connections, connections_per_address : int
        Most connections that are open at once, in all and from one address.
    questions, waiting_questions : int
        Most questions to models that are worked on at once, and that wait for it.
    question_seconds : float
        Longest time that the work on one question may take.
    answer_values : int
        Most numbers of one answer.
    stall_seconds : float
        How long rows may wait without any being learned before `/health` says so.
    """

    body_bytes: int = 8 * MIB
    model_bytes: int = 64 * MIB
    rows: int = 50_000
    columns: int = 1024
    models: int = 100_000
    models_in_memory: int = 256
    memory_bytes: int = 512 * MIB
    metrics_models: int = 1000
    waiting_values: int = 50_000_000
    requests_per_second: float = 500.0
    streams: int = 100
    body_seconds: float = 30.0
    header_seconds: float = 10.0
    connections: int = 1000
    connections_per_address: int = 200
    questions: int = 4
    waiting_questions: int = 64
    question_seconds: float = 20.0
    answer_values: int = 2_000_000
    stall_seconds: float = 60.0


@dataclass(frozen=True)
class Settings:
    """How the service runs.

    Parameters
    ----------
    host, port
        The address to listen on.
    token : str, optional
        What a client must know; an address beyond this machine needs one.
    read_token : str, optional
        What a client must know that asks and watches, but changes nothing.
    limits : Limits
        Its bounds.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name, token in (("token", self.token), ("read-only token", self.read_token)):
            if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii()):
                raise InputError(
                    f"The {name} has {len(token)} characters; it needs at least {_SHORTEST_TOKEN}, all of them ASCII. "
                    "Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
                )
        if self.token is None and not is_loopback(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines, so that a token is needed. Write a secret of at "
                f"least {_SHORTEST_TOKEN} characters to a file and name it with --token-file, or set EVERLEARN_TOKEN."
            )
        if self.read_token is not None and self.token is None:
            raise InputError("A read-only token needs a token for changes beside it: give --token-file, too.")
        if self.read_token is not None and self.read_token == self.token:
            raise InputError("The read-only token and the token for changes are the same; make another one.")


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
