"""The application: addresses, page, middleware and models put together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI

import everlearn
from everlearn.service import api, errors, pages, watching
from everlearn.service.events import EventStreams
from everlearn.service.logs import RequestMiddleware
from everlearn.service.metrics import Metrics, MetricsMiddleware
from everlearn.service.proxies import ProxyMiddleware
from everlearn.service.questions import Questions
from everlearn.service.repository import ModelRepository
from everlearn.service.security import SecurityMiddleware
from everlearn.service.settings import Settings
from everlearn.streams.store.store import Store

_DESCRIPTION = """
Models that never stop learning: send rows, ask anything about the data, watch it live.

A missing value is `null`. Every refusal has a JSON body whose `detail` says what is wrong and what to do. A service
that has a token wants it in the header `Authorization: Bearer TOKEN`.
"""


def create_app(state: str | os.PathLike[str] | ModelRepository, settings: Settings | None = None) -> FastAPI:
    """Make the application, an ASGI one, for a state file.

    Parameters
    ----------
    state : path-like or ModelRepository
        The state file, made if it is not there; or the models in one, opened by a caller who wants to hear of a file
        that cannot be used.
    settings : Settings, optional
        Address, token and limits.

    Returns
    -------
    FastAPI
        The application. It opens the file when it starts, unless it is open, and closes it when it ends.
    """
    settings = settings or Settings()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        repository = (
            state
            if isinstance(state, ModelRepository)
            else ModelRepository(Store(state), settings.limits, quick_answers=settings.quick_answers)
        )
        app.state.repository = repository
        app.state.questions = Questions(settings.limits)
        app.state.streams = EventStreams(repository, settings.limits.streams)
        # Rows that an earlier process acknowledged and did not learn are learned first.
        repository.start()
        try:
            yield
        finally:
            # Event streams never end by themselves: the server would wait for them until its grace period is over.
            app.state.streams.closing = True
            repository.stop()

    app = FastAPI(
        title="everlearn",
        version=everlearn.__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": settings.root_path}] if settings.root_path else None,
    )
    for router in (api.models, api.files, watching.router, api.about, pages.router):
        app.include_router(router)
    errors.add_handlers(app)
    # Outermost last: proxy, log, metrics, security. A refused request is logged and counted, under the client's own
    # address.
    app.add_middleware(SecurityMiddleware, settings=settings)
    app.state.metrics = Metrics()
    app.add_middleware(MetricsMiddleware, metrics=app.state.metrics)
    app.add_middleware(RequestMiddleware, access_log=settings.access_log)
    app.add_middleware(ProxyMiddleware, settings=settings)  # the last one sees a request first
    return app
