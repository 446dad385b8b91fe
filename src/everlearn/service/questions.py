"""Questions to models: few at a time, each with a limit of time, and none for a client that has gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec

import anyio.to_thread
from fastapi import Request, Response
from pydantic import BaseModel

from everlearn.service.errors import BusyError, ClientGoneError, TooExpensiveError
from everlearn.service.settings import Limits

P = ParamSpec("P")


class Budget:
    """What the work on one question may take; the work asks it, between two parts, whether to go on.

    Parameters
    ----------
    seconds : float
        Time from the beginning of the work.
    values : int
        Numbers of the answer.
    """

    def __init__(self, seconds: float, values: int) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._values = values
        self._gone = threading.Event()

    def begin(self) -> None:
        """Start the clock: the work begins now."""
        self._end = time.monotonic() + self._seconds

    def cancel(self) -> None:
        """Say that nobody waits for the answer."""
        self._gone.set()

    def check(self) -> None:
        """Raise an error if the work should end."""
        if self._gone.is_set():
            raise ClientGoneError("The client has gone.")
        if time.monotonic() > self._end:
            raise TooExpensiveError(
                f"The question takes more than {self._seconds:g} s. Ask for fewer rows or columns at once."
            )

    def check_size(self, n_values: int) -> None:
        """Refuse a question whose answer is too large, before it is computed."""
        if n_values > self._values:
            raise TooExpensiveError(
                f"The answer would have {n_values:,} numbers; at most {self._values:,} are given at once. Ask for "
                "fewer rows or columns."
            )


class Questions:
    """Threads for questions, apart from those that take rows and tell of the service's health.

    Parameters
    ----------
    limits : Limits
        How many are worked on at once, how many wait, and what each may take.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = anyio.CapacityLimiter(limits.questions)
        self._open = 0

    async def ask(
        self,
        request: Request,
        function: Callable[Concatenate[Budget, P], BaseModel],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Response:
        """Answer with what `function` gives for a budget and the arguments; it runs in a thread.

        Parameters
        ----------
        request : Request
            The request, whose body has been read.
        function : callable
            Takes a budget first.
        *args, **kwargs
            The rest of its arguments.

        Returns
        -------
        Response
            The answer as JSON. Large answers become text in the thread, so that the event loop stays free.
        """
        # Refused at once: who waits behind 68 others has given up by the time of the answer, and the work is done for
        # nobody.
        if self._open >= self._limits.questions + self._limits.waiting_questions:
            raise BusyError(f"{self._open} questions are being answered or wait, which is the limit. Ask again later.")
        budget = Budget(self._limits.question_seconds, self._limits.answer_values)

        def work() -> bytes:
            # The clock starts in the thread: time spent waiting for it is not the question's.
            budget.begin()
            budget.check()
            return function(budget, *args, **kwargs).model_dump_json().encode()

        self._open += 1
        # A thread cannot be interrupted from outside: the work asks the budget between two parts whether to go on.
        watch = asyncio.create_task(_cancel_when_gone(request, budget))
        try:
            text = await anyio.to_thread.run_sync(work, limiter=self._threads)
        finally:
            self._open -= 1
            watch.cancel()
            budget.cancel()  # a server that stops does not wait for the thread
        return Response(text, media_type="application/json")


async def _cancel_when_gone(request: Request, budget: Budget) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    budget.cancel()
