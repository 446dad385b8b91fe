"""Logs: each request once, with its id, in text or JSON; no secret in them."""

import asyncio
import json
import logging
import re

import pytest

from everlearn.service import logs
from everlearn.service.settings import Settings, Token

SECRET = "a-token-that-is-long-enough"


@pytest.fixture
def log(capsys):
    """What was logged since it was asked the last time."""
    names = ("everlearn", "uvicorn")
    kept = {name: (logging.getLogger(name).handlers[:], logging.getLogger(name).level) for name in names}
    yield lambda: capsys.readouterr().err
    for name, (handlers, level) in kept.items():
        logging.getLogger(name).handlers[:] = handlers
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).propagate = True


def entries(text):
    return [json.loads(line) for line in text.splitlines()]


def test_access_log_in_json(log, open_client):
    settings = {"access_log": True, "log_format": "json", "tokens": (Token("gateway", SECRET),)}
    logs.configure(Settings(**settings))
    client = open_client(**settings)
    client.get("/models", headers={"Authorization": f"Bearer {SECRET}", "X-Request-ID": "abc-1"})
    refused = client.get("/models")
    text = log()
    first, second = entries(text)
    assert (first["method"], first["path"], first["status"]) == ("GET", "/models", 200)
    assert (first["token"], first["request_id"], first["level"]) == ("gateway", "abc-1", "info")
    assert first["seconds"] >= 0
    assert (second["status"], second["token"], second["request_id"]) == (401, "", refused.headers["x-request-id"])
    assert SECRET not in text


def test_access_log_in_text_is_one_line_a_request(log, open_client):
    logs.configure(Settings(access_log=True))
    open_client(access_log=True).get("/models/%0AGET%20/fake%20200")
    (line,) = log().splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z INFO GET /models/%0AGET%20/fake%20200 404 ", line)
    assert " id=" in line


def test_no_access_log_unless_asked(log, open_client):
    logs.configure(Settings())
    open_client().get("/models")
    assert log() == ""


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "a\tb", "ü"])
def test_ids_that_are_not_plain_are_replaced(client, given):
    found = client.get("/livez", headers={"X-Request-ID": given.encode()}).headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", found)


def test_a_mistake_of_ours_is_found_by_its_id(log, open_client, monkeypatch):
    logs.configure(Settings(log_format="json"))
    client = open_client()
    monkeypatch.setattr(client.app.state.repository.store, "n_models", lambda: 1 / 0)
    client._transport.raise_server_exceptions = False
    answer = client.get("/models")
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] in answer.json()["detail"]


def test_entries_outside_of_requests(log):
    logs.configure(Settings(log_format="json", log_level="info"))
    try:
        raise ValueError("what happened")
    except ValueError:
        logging.getLogger("everlearn.service.learning").exception("line 1\nline 2")
    (entry,) = entries(log())
    assert (entry["message"], entry["level"]) == ("line 1\nline 2", "error")
    assert "what happened" in entry["traceback"]
    assert "request_id" not in entry


@pytest.mark.parametrize("begun", [False, True])
def test_a_request_that_is_cut_off_by_the_end_of_the_service_is_no_traceback(begun):
    """The server cancels what is still at work after its time to stop, and logs what comes out of the application."""
    sent = []

    async def work(scope, receive, send):
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(60.0)

    async def send(message):
        sent.append(message)

    async def stopped():
        task = asyncio.create_task(logs.RequestMiddleware(work, False)({"type": "http", "headers": []}, None, send))
        await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(stopped())
    assert [message.get("status") for message in sent] == ([200] if begun else [503, None])
    if not begun:
        assert "stopping" in json.loads(sent[1]["body"])["detail"]
