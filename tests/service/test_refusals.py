"""What must not work: every refusal is a 4xx that says what is wrong, and leaves the models as they were."""

import asyncio
import json

import numpy as np
import pytest
from starlette.exceptions import HTTPException

import everlearn
from everlearn.errors import InputError
from everlearn.persistence.model_file import dumps
from everlearn.service.security import LimitedBody, RateLimiter
from everlearn.service.settings import Limits, Settings, is_loopback
from service_tools import as_json, learned

JSON = {"Content-Type": "application/json"}
TOKEN = "a-token-that-is-long-enough"


@pytest.fixture(scope="module")
def taught(module_client):
    """A client of a service whose model `a` has learned 300 rows; whatever is refused leaves it as it is."""
    rows = np.random.default_rng(0).normal(size=(300, 2))
    module_client.post("/models/a/learn", json={"columns": ["u", "v"], "rows": as_json(rows)})
    learned(module_client, "a")
    return module_client


def refused(answer, status, *words):
    assert answer.status_code == status, answer.text[:500]
    detail = answer.json()["detail"]
    assert len(detail) < 1500
    for word in words:
        assert word in detail
    return detail


BODIES = {
    "no JSON": (b"{rows", 422, ["not JSON"]),
    "nothing": (b"", 422, ["body"]),
    "a list": (b"[]", 422, []),
    "deep": (b"[" * 50_000, 400, ["nested too deeply"]),
    "not UTF-8": (b'{"rows": [[\xff\xfe]]}', 400, ["UTF-8"]),
    "NaN": (b'{"rows": [[1, NaN]]}', 422, ["rows[0][1]", "null"]),
    "infinity": (b'{"rows": [[1, 2], [-Infinity, 3]]}', 422, ["rows[1][0]", "null"]),
    "overflow": (b'{"rows": [[1, 1e999]]}', 422, ["rows[0][1]"]),
    "huge integer": (b'{"rows": [[1, ' + b"9" * 400 + b"]]}", 422, ["rows[0][1]"]),
    "text": (b'{"rows": [[1, "warm"]]}', 422, ["rows[0][1]", "'warm'"]),
    "number as text": (b'{"rows": [[1, "2"]]}', 422, ["rows[0][1]"]),
    "truth": (b'{"rows": [[1, true]]}', 422, ["rows[0][1]"]),
    "no rows": (b'{"rows": []}', 422, ["rows"]),
    "empty row": (b'{"rows": [[]]}', 422, ["rows[0]"]),
    "ragged": (b'{"rows": [[1, 2], [1]]}', 422, ["rows[1] has 1 values", "2 columns"]),
    "too wide": (b'{"rows": [[1, 2, 3]]}', 422, ["rows[0] has 3 values"]),
    "other columns": (b'{"columns": ["u", "w"], "rows": [[1, 2]]}', 422, ["unknown: w", "missing: v"]),
    "column twice": (b'{"columns": ["u", "u"], "rows": [[1, 2]]}', 422, ["'u' twice"]),
    "unknown field": (b'{"rows": [[1, 2]], "colunms": ["u"]}', 422, ["colunms"]),
    "a million columns": (b'{"rows": [[' + b"0," * 999_999 + b"0]]}", 422, ["1,000,000 columns", "1,024"]),
    "many bad cells": (b'{"rows": [' + b'["x"],' * 200_000 + b'["x"]]}', 422, ["rows[0][0]"]),
    "too many rows": (b'{"rows": [' + b"[1,2]," * 60_000 + b"[1,2]]}", 422, ["60,001 rows", "50,000"]),
    "too large": (b" " * (8 * 2**20 + 1), 413, ["8,388,608 bytes"]),
}


@pytest.mark.parametrize(("body", "status", "words"), BODIES.values(), ids=BODIES)
def test_bad_rows(taught, body, status, words):
    for path in ("learn", "score"):
        refused(taught.post(f"/models/a/{path}", content=body, headers=JSON), status, *words)
    assert taught.get("/models/a").json()["rows"] == 300


@pytest.mark.parametrize(
    "body", ['{"rows": [[NaN]]}', '{"rows": [[1], [1, 2]]}', '{"columns": ["a", "a"], "rows": [[1, 2]]}']
)
def test_bad_rows_make_no_model(client, body):
    assert client.post("/models/new/learn", content=body, headers=JSON).status_code == 422
    assert client.get("/models").json()["models"] == []


@pytest.mark.parametrize("name", ["%2e%2e", "%2e%2e%2fpasswd", "a/b", "", "a" * 65, "-a", "ü", "a b", "a%00b", "C:\\x"])
def test_names_are_names(client, name):
    for method, path in (("GET", ""), ("POST", "/learn"), ("GET", "/file"), ("DELETE", "")):
        status = client.request(
            method, f"/models/{name}{path}", json={"rows": [[1]]} if method == "POST" else None
        ).status_code
        assert 400 <= status < 500, (method, name, status)
    assert client.get("/models").json()["models"] == []


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/page.js/", "/static/", "/.env", "/redoc"]
)
def test_no_other_files(client, path):
    assert client.get(path).status_code in (404, 405, 422)


QUESTIONS = [
    ("predict", {"rows": [{"u": 1}], "target": ["u"]}, ["share a column"]),
    ("predict", {"rows": [{"w": 1}], "target": ["u"]}, ["'w'", "no column"]),
    ("predict", {"rows": [], "target": ["u"]}, ["rows"]),
    ("predict", {"rows": [{}], "target": []}, ["target"]),
    ("predict", {"rows": [{}], "target": ["u"], "coverage": 1.0}, ["coverage"]),
    ("condition", {"target": "w"}, ["'w'"]),
    ("condition", {"rows": [{"w": None}], "target": "u"}, ["'w'"]),
    ("sample", {"n_rows": 0}, ["n_rows"]),
    ("sample", {"n_rows": 10**9}, ["50,000"]),
    ("sample", {"rows": [{"u": 1, "v": 2}]}, ["every column"]),
]


@pytest.mark.parametrize(("path", "body", "words"), QUESTIONS)
def test_bad_questions(taught, path, body, words):
    refused(taught.post(f"/models/a/{path}", json=body), 422, *words)


def test_bad_axes(taught):
    refused(taught.get("/models/a/pictures/components?x=u"), 422, "both x and y")
    refused(taught.get("/models/a/pictures/components?x=u&y=w"), 422, "'w'")
    assert taught.get("/models/a/pictures/nonsense").status_code == 422


def test_unknown_models(client):
    for path in ("", "/file", "/history", "/events", "/pictures/likelihood"):
        refused(client.get(f"/models/none{path}"), 404, "'none'")
    refused(client.post("/models/none/score", json={"rows": [[1]]}), 404)
    refused(client.delete("/models/none"), 404)


def test_a_model_that_learned_nothing_says_so(client):
    client.put("/models/a", json={"columns": ["u"]})
    refused(client.post("/models/a/score", json={"rows": [[1]]}), 409, "learned nothing yet")
    refused(client.post("/models/a/condition", json={"target": "u"}), 409, "learned nothing yet")
    refused(client.get("/models/a/pictures/weights"), 409, "learned nothing yet")
    assert client.get("/models/a").json()["columns"] == [{"name": "u", "mean": None, "std": None}]


def test_rows_without_any_value(client):
    client.post("/models/a/learn", json={"rows": [[None, None]] * 5})
    assert learned(client, "a")["rows"] == 5
    assert client.post("/models/a/condition", json={"target": "x0"}).status_code == 422
    assert client.get("/models/a/pictures/components").status_code == 422


PARAMETERS = [
    ({"kind": "GaussianMixture"}, ["kind"]),
    ({"parameters": {"betta": 1}}, ["'betta'", "It has:"]),
    ({"parameters": {"novelty_level": 7}}, ["novelty_level"]),
    ({"parameters": {"novelty_level": "x"}}, ["novelty_level"]),
    ({"parameters": {"reservoir": 10**12}}, ["too large"]),
    ({"parameters": {"n_components": [1]}}, ["n_components"]),
    ({"parameters": {"scale": [1.0, 2.0, 3.0]}}, ["scale"]),
    ({"parameters": {"change_detector": {"a": 1}}}, ["change_detector"]),
    ({"kind": "OnlinePPCA", "parameters": {"n_components": 5}}, ["n_components=5"]),
]


@pytest.mark.parametrize(("body", "words"), PARAMETERS)
def test_bad_parameters(client, body, words):
    refused(client.put("/models/a", json={"columns": ["u", "v"], **body}), 422, *words)
    assert client.get("/models").json()["models"] == []


def test_a_name_is_taken_once(client):
    assert client.put("/models/a", json={"columns": ["u"]}).status_code == 201
    refused(client.put("/models/a", json={"columns": ["u"]}), 409, "already")


# -- model files -----------------------------------------------------------------------------------


def upload(client, data, kind="application/octet-stream"):
    return client.post("/models/a/merge", content=data, headers={"Content-Type": kind})


def test_bad_model_files(taught):
    good = taught.get("/models/a/file").content
    refused(upload(taught, b""), 422)
    refused(upload(taught, b"\x80\x04\x95pickle"), 422, "pickle")
    refused(upload(taught, good[: len(good) // 2]), 422)
    refused(upload(taught, good[:-1] + bytes([good[-1] ^ 1])), 422)
    refused(upload(taught, good, "application/json"), 415, "application/octet-stream")
    refused(upload(taught, dumps(everlearn.IncrementalGaussianMixture())), 422, "learned nothing")
    X = np.random.default_rng(1).normal(size=(50, 3))
    refused(upload(taught, dumps(everlearn.IncrementalGaussianMixture().fit(X))), 422, "columns")
    refused(upload(taught, dumps(everlearn.OnlinePPCA().fit(X))), 422, "cannot be merged")
    y = X[:, 0] > 0
    refused(upload(taught, dumps(everlearn.IncrementalGaussianMixtureClassifier().fit(X, y))), 422, "cannot be merged")
    refused(upload(taught, dumps(everlearn.FIGMN().fit(X))), 422, "takes")
    assert taught.get("/models/a").json()["rows"] == 300


# -- who may ask -----------------------------------------------------------------------------------


def test_only_loopback_goes_without_a_token():
    for host in ("0.0.0.0", "192.168.1.4", "example.org", "::"):
        with pytest.raises(InputError, match="token"):
            Settings(host=host)
        Settings(host=host, token=TOKEN)
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]")))
    with pytest.raises(InputError, match="at least 16"):
        Settings(token="short")
    assert TOKEN not in repr(Settings(token=TOKEN))


def test_the_token_is_asked_for(open_client):
    client = open_client(token=TOKEN)
    for path in ("/models", "/models/a", "/metrics", "/models/a/events"):
        answer = client.get(path)
        refused(answer, 401, "Authorization: Bearer")
        assert answer.headers["www-authenticate"] == "Bearer"
    for wrong in ("Bearer wrong-wrong-wrong-wrong", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
        assert client.get("/models", headers={"Authorization": wrong.encode()}).status_code == 401
    assert client.get("/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    for path in ("/", "/health", "/static/page.js"):
        assert client.get(path).status_code == 200


def test_other_hosts_and_origins_are_refused(client):
    refused(client.get("/models", headers={"Host": "evil.example"}), 421, "localhost")
    refused(client.get("/models", headers={"Origin": "http://evil.example"}), 403, "evil.example")
    for host in ("localhost:8765, evil", "[::1].evil.example", "localhost:", "localhost.evil", "localhost:80@evil", ""):
        refused(client.get("/models", headers={"Host": host}), 421, "localhost")
    for origin in ("chrome-extension://localhost", "null", "file://", "http://localhost.evil", "http://a@localhost"):
        refused(client.get("/models", headers={"Origin": origin}), 403, "refused")
    assert client.get("/models", headers={"Origin": "http://localhost"}).status_code == 200
    assert client.get("/models", headers={"Host": "LOCALHOST:1"}).status_code == 200
    assert client.get("/models", headers={"Host": "127.0.0.1:99"}).status_code == 200


def test_what_a_foreign_page_could_send_is_refused(client):
    body = json.dumps({"rows": [[1]]})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        refused(client.post("/models/a/learn", content=body, headers={"Content-Type": kind}), 415)
    assert client.get("/models").json()["models"] == []


def test_every_answer_has_the_headers(client):
    for path in ("/", "/models", "/models/none", "/static/plotly.js"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "script-src 'self';" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert client.get("/models").headers["cache-control"] == "no-store"


def test_files_are_compressed_and_cached(client):
    answer = client.get("/static/plotly.js")
    assert answer.headers["content-encoding"] == "gzip"
    again = client.get("/static/plotly.js", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/", headers={"Accept-Encoding": "identity"}).text.startswith("<!doctype html>")


# -- how much, how often -----------------------------------------------------------------------------


def test_rates_refill():
    rates = RateLimiter()
    assert [rates.wait("a", 10.0, now=0.0) for _ in range(20)] == [0.0] * 20
    assert rates.wait("a", 10.0, now=0.0) == pytest.approx(0.1)
    assert rates.wait("b", 10.0, now=0.0) == 0.0
    assert rates.wait("a", 10.0, now=0.1) == 0.0
    assert rates.wait("a", 10.0, now=0.1) > 0.0
    assert sum(rates.wait("a", 10.0, now=100.0) == 0.0 for _ in range(50)) == 20


def test_rates_below_one_let_requests_pass():
    rates = RateLimiter()
    assert rates.wait("a", 0.1, now=0.0) == 0.0
    assert rates.wait("a", 0.1, now=0.0) == pytest.approx(10.0)
    assert rates.wait("a", 0.1, now=10.0) == 0.0


def test_memory_of_rates_is_bounded():
    rates = RateLimiter()
    for i in range(30_000):
        rates.wait(str(i), 1.0, now=0.0)
    assert len(rates._buckets) == 10_000


def test_too_many_requests(open_client):
    client = open_client(limits=Limits(requests_per_second=1.0))
    answers = [client.get("/health") for _ in range(30)]
    assert answers[0].status_code == 200
    answer = next(answer for answer in answers if answer.status_code != 200)
    refused(answer, 429, "1 per second")
    assert answer.headers["retry-after"] == "1"


def test_the_inbox_is_bounded(open_client):
    client = open_client(limits=Limits(waiting_values=1000))
    refused(client.post("/models/a/learn", json={"rows": [[1.0] * 11] * 100}), 429, "wait to be learned")
    for _ in range(5):
        assert client.post("/models/a/learn", json={"rows": [[1.0] * 11] * 50}).status_code == 202
        learned(client, "a")


def test_models_are_bounded(open_client):
    client = open_client(limits=Limits(models=2))
    for name in "ab":
        client.post(f"/models/{name}/learn", json={"rows": [[1.0]]})
    refused(client.post("/models/c/learn", json={"rows": [[1.0]]}), 409, "limit")


def test_bodies_without_a_length_are_bounded(open_client):
    client = open_client(limits=Limits(body_bytes=10_000))
    chunks = (b" " * 1000 for _ in range(100))
    refused(client.post("/models/a/learn", content=chunks, headers=JSON), 413, "10,000 bytes")


def test_slow_bodies_are_cut_off():
    async def never():
        await asyncio.sleep(60)

    with pytest.raises(HTTPException) as caught:
        asyncio.run(LimitedBody(never, 100, 0.05)())
    assert caught.value.status_code == 408
