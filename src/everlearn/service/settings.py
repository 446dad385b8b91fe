"""What the service allows: its limits, and who may ask."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from everlearn.errors import InputError

MIB = 1 << 20
# 16 characters of a URL-safe alphabet are 96 bits: not to be guessed at any rate that the service answers.
_SHORTEST_TOKEN = 16
_MOST_TOKENS = 1000
_TOKEN_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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
class Token:
    """What a client must know, and what it may do then.

    Parameters
    ----------
    name : str
        How logs call it; the secret is never written there.
    secret : str
        At least 16 ASCII characters.
    may : {"read", "write"}
        Whether it is good for questions only, or for changes, too.
    rate : float, optional
        Most requests per second of all clients that have it; by default those of one address are counted.
    """

    name: str
    secret: str = field(repr=False)
    may: Literal["read", "write"] = "write"
    rate: float | None = None

    def __post_init__(self) -> None:
        if not _TOKEN_NAME.fullmatch(self.name):
            raise InputError(f"{self.name[:40]!r} is no name for a token: give letters, digits, dots and dashes.")
        if len(self.secret) < _SHORTEST_TOKEN or not self.secret.isascii() or not self.secret.isprintable():
            raise InputError(
                f"The token {self.name!r} has {len(self.secret)} characters; it needs at least {_SHORTEST_TOKEN}, all "
                "of them ASCII. Make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
        if self.may not in ("read", "write"):
            raise InputError(f"The token {self.name!r} may {self.may[:40]!r}; write read or write.")
        if self.rate is not None and not 0.0 < self.rate < float("inf"):
            raise InputError(f"The token {self.name!r} has the rate {self.rate}; give requests per second above 0.")


def read_tokens(path: str | os.PathLike[str]) -> tuple[Token, ...]:
    """Tokens in a file: a line for each, with its name, read or write, the secret, and perhaps a rate.

    Empty lines and those that begin with # are left out.
    """
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        # The line itself is not shown: it holds a secret.
        if len(words) not in (3, 4):
            raise InputError(f"{path}, line {number}: write NAME read|write TOKEN [REQUESTS-PER-SECOND].")
        try:
            rate = float(words[3]) if len(words) == 4 else None
        except ValueError:
            raise InputError(f"{path}, line {number}: the rate of {words[0]!r} is not a number.") from None
        found.append(Token(words[0], words[2], words[1], rate))  # type: ignore[arg-type]
    if not found:
        raise InputError(f"{path} holds no token. Write NAME read|write TOKEN [REQUESTS-PER-SECOND] on a line.")
    return tuple(found)


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
    tokens : sequence of Token
        More of both kinds, with names and rates of their own.
    root_path : str
        Path under which a proxy shows the service, such as "/everlearn"; requests with and without it are understood.
    trusted_proxies : sequence of str
        Addresses or networks of proxies whose X-Forwarded-For, -Host and -Proto are believed.
    access_log : bool
        Whether each request is logged.
    log_format : {"text", "json"}
        A line of text, or of JSON, for each entry of the log.
    log_level : {"debug", "info", "warning", "error"}
        What is logged; the access log is of level info and is written anyhow.
    quick_answers : bool
        Whether mixtures answer from their components as the rows have left them. Else a question is preceded by a
        search of the structure, as in Python, where there are 5 % more rows than at the last search.
    limits : Limits
        Its bounds.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)
    tokens: tuple[Token, ...] = ()
    root_path: str = ""
    trusted_proxies: tuple[str, ...] = ()
    access_log: bool = False
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    quick_answers: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        tokens = self.all_tokens
        may_write = any(token.may == "write" for token in tokens)
        if not tokens and not is_loopback(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines, so that a token is needed. Write a secret of at "
                f"least {_SHORTEST_TOKEN} characters to a file and name it with --token-file, or set EVERLEARN_TOKEN."
            )
        if tokens and not may_write:
            raise InputError("A read-only token needs a token for changes beside it: give --token-file, too.")
        # The secret alone says which token it is: of two, one would have the rights of the other.
        if len({token.secret for token in tokens}) < len(tokens):
            raise InputError("Two tokens are the same; make another one.")
        if len({token.name for token in tokens}) < len(tokens):
            raise InputError("Two tokens have the same name; rename one. `token` and `read-token` are taken.")
        if len(tokens) > _MOST_TOKENS:
            raise InputError(f"There are {len(tokens):,} tokens; at most {_MOST_TOKENS:,} are taken.")
        if not _ROOT_PATH.fullmatch(self.root_path):
            raise InputError(
                f"The root path is {self.root_path[:80]!r}; give a path such as /everlearn, no / at its end."
            )
        self.networks()

    @property
    def all_tokens(self) -> tuple[Token, ...]:
        """All tokens, those without a name of their own included."""
        own = [] if self.token is None else [Token("token", self.token)]
        own += [] if self.read_token is None else [Token("read-token", self.read_token, "read")]
        return (*own, *self.tokens)

    def networks(self) -> tuple[Network, ...]:
        """The proxies that are trusted."""
        try:
            return tuple(ipaddress.ip_network(each, strict=False) for each in self.trusted_proxies)
        except ValueError as error:
            raise InputError(
                f"--trusted-proxy: {error}. Give an address such as 10.0.0.7, or a network such as 10.0.0.0/8."
            ) from error


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
