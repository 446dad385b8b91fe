"""Start the service and let it run."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Any

from everlearn.base.interrupts import HeldInterrupts
from everlearn.errors import InputError, require
from everlearn.service.settings import Settings

_GRACE_SECONDS = 3


def serve(state: str | os.PathLike[str], settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve a state file until interrupted.

    Parameters
    ----------
    state : path-like
        The state file; it is made if it is not there.
    settings : Settings
        Address, token and limits.
    ready : callable
        Called with the address of the live page once it is known.

    Raises
    ------
    StateFileError
        The file is damaged, or of another program.
    InputError
        The address cannot be listened on.
    """
    # An interrupt while Python imports can fall into a callback, where it is printed and lost: it waits.
    with HeldInterrupts():
        config = _configured(state, settings)
    with _listen(settings) as listener:
        ready(_url(settings.host, listener.getsockname()[1]))
        require("uvicorn", extra="serve").Server(config).run(sockets=[listener])


def _configured(state: str | os.PathLike[str], settings: Settings) -> Any:
    """The server's configuration, with the application; the state file is open."""
    uvicorn = require("uvicorn", extra="serve")
    require("fastapi", extra="serve")
    require("plotly", extra="serve")
    require("prometheus_client", extra="serve")
    from everlearn.service.app import create_app
    from everlearn.service.connections import limited_protocol
    from everlearn.service.logs import configure
    from everlearn.service.repository import ModelRepository
    from everlearn.streams.store.store import Store

    configure(settings)
    # Opened here and not when the application starts: there a full disk would end in a traceback of the server's.
    repository = ModelRepository(Store(state), settings.limits, quick_answers=settings.quick_answers)
    return uvicorn.Config(
        create_app(repository, settings),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=limited_protocol(settings),
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ws="none",
    )


def _listen(settings: Settings) -> socket.socket:
    """A socket at the address, or the reason why there is none."""
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # Without this a restart fails for a minute, while the old connections are in TIME_WAIT.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, settings.port))
    except OSError as error:
        listener.close()
        taken = error.errno == errno.EADDRINUSE
        why = "another program listens there; choose another --port" if taken else f"{error.strerror or error}"
        raise InputError(f"The service cannot listen on {host}, port {settings.port}: {why}.") from error
    return listener


def _url(host: str, port: int) -> str:
    shown = host if ":" not in host else f"[{host.strip('[]')}]"
    return f"http://{shown}:{port}/"
