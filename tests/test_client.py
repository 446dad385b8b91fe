"""The client: what it sends is learned once, what fails for a while is tried again, refusals are told."""

import http.server
import json
import threading
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import everlearn
from everlearn import Client
from everlearn.errors import InputError, ServiceError
from service_tools import Service

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
X = RNG.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=300)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = Service(tmp_path_factory.mktemp("state") / "run.db")
    yield service
    service.kill()


@pytest.fixture
def client(service):
    with Client(service.url) as client:
        yield client


@pytest.fixture(scope="module")
def taught(service):
    client = Client(service.url)
    assert client.learn("machine", X, columns=["u", "v"]) == 300
    client.wait("machine")
    return client


def test_learns_and_asks(taught):
    assert taught.show("machine")["rows"] == 300
    model = taught.model("machine")
    scores = taught.score("machine", [[0.1, np.nan], [9.0, -9.0]])
    rows = pd.DataFrame([[0.1, np.nan], [9.0, -9.0]], columns=["u", "v"])
    np.testing.assert_allclose(scores["log_density"], model.score_samples(rows))
    found = taught.predict("machine", [{"u": 1.0}], ["v"], coverage=0.5)
    assert found["mean"].shape == (1, 1)
    assert found["low"] < found["mean"] < found["high"]
    told = taught.condition("machine", "v", {"u": 1.0})
    assert told["mean"] == pytest.approx(found["mean"][0, 0])
    assert told["x"].shape == told["density"].shape
    drawn = taught.sample("machine", 5, {"u": 1.0})
    assert drawn.shape == (5, 2)
    assert (drawn[:, 0] == 1.0).all()
    assert len(taught.history("machine")) == 3
    assert "machine" in [model["name"] for model in taught.models()]
    assert taught.version()["everlearn"] == everlearn.__version__
    assert taught.health()["status"] == "ok"


def test_frames_and_dictionaries(client):
    assert client.learn("frame", pd.DataFrame({"u": [1.0, None], "v": [2.0, 3.0]})) == 2
    assert client.learn("frame", [{"v": 1.0}, {"u": np.float64(2), "v": float("nan")}]) == 2
    summary = client.wait("frame")
    assert (summary["rows"], [column["name"] for column in summary["columns"]]) == (4, ["u", "v"])
    client.delete("frame")
    with pytest.raises(ServiceError, match="no model 'frame'"):
        client.show("frame")


def test_classifiers(client):
    client.create("wear", ["u", "v"], kind="IncrementalGaussianMixtureClassifier", target="state")
    client.learn("wear", np.vstack([X, X + 5]), np.repeat(["good", "worn"], 300))
    client.wait("wear")
    assert client.predict("wear", [[0, 0], [5, 5]])["label"] == ["good", "worn"]


def test_large_calls_are_cut_and_a_key_counts_once(client, monkeypatch):
    monkeypatch.setattr("everlearn.client._BATCH_ROWS", 100)
    for _ in range(2):
        assert client.learn("keyed", X[:250], key="monday") == 250
    assert client.wait("keyed")["rows"] == 250


def test_models_travel(client, taught):
    here = everlearn.IncrementalGaussianMixture().partial_fit(X)
    here.feature_names_in_ = np.array(["u", "v"], dtype=object)
    assert client.merge("merged", here)["rows"] == 300
    assert client.merge("merged", taught.model("machine"))["rows"] == 600


def test_events(taught):
    event = next(taught.events("machine"))
    assert event["kind"] in ("novelty", "change", "progress")
    with pytest.raises(ServiceError, match="no model"):
        next(taught.events("nobody"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.learn("m", [1.0, 2.0]), "shape"),
        (lambda c: c.learn("m", [[1.0, float("inf")]]), r"rows\[0\]\[1\] is infinite"),
        (lambda c: c.learn("m", [["warm"]]), "numbers"),
        (lambda c: c.learn("m", [[1.0]], ["a", "b"]), "2 targets"),
        (lambda c: Client("localhost:8765"), "http://127.0.0.1:8765"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(client, call, words):
    with pytest.raises(InputError, match=words):
        call(client)


def test_refusals_have_status_and_id(client):
    client.learn("narrow", [[1.0]])
    with pytest.raises(ServiceError, match="1 columns") as caught:
        client.learn("narrow", [[1.0, 2.0]])
    assert caught.value.status == 422
    assert len(caught.value.request_id) == 32


# -- a service that fails ----------------------------------------------------------------------------


@pytest.fixture
def flaky():
    """A server that answers as it is told: a status with a body, or nothing at all."""
    plan = SimpleNamespace(answers=[], asked=[], url="")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            plan.asked.append((self.command, self.path, self.headers.get("Idempotency-Key"), body))
            status, headers, answer = plan.answers.pop(0)
            if status is None:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_DELETE = do_POST

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    plan.url = f"http://127.0.0.1:{server.server_port}/prefix"
    yield plan
    server.shutdown()
    server.server_close()


ACCEPTED = (202, {}, json.dumps({"accepted": 1, "batch": 1, "columns": ["x0"]}).encode())
LOST = (None, {}, b"")
BUSY = (429, {"Retry-After": "0"}, b'{"detail": "Too many requests"}')


def test_rows_are_sent_again_with_the_same_key(flaky):
    flaky.answers = [LOST, BUSY, (503, {}, b"<html>proxy</html>"), ACCEPTED]
    assert Client(flaky.url).learn("m", [[1.0]]) == 1
    assert len(flaky.asked) == 4
    assert len({(path, key) for _, path, key, _ in flaky.asked}) == 1
    assert flaky.asked[0][1] == "/prefix/models/m/learn"


def test_what_is_refused_is_not_sent_again(flaky):
    flaky.answers = [(422, {}, b'{"detail": "rows[0]: no"}')]
    with pytest.raises(ServiceError, match=r"rows\[0\]: no"):
        Client(flaky.url).learn("m", [[1.0]])


def test_changes_without_a_key_are_not_repeated_blindly(flaky):
    flaky.answers = [BUSY, LOST]
    with pytest.raises(ServiceError, match="not known whether"):
        Client(flaky.url).create("m", ["u"])
    assert len(flaky.asked) == 2  # the first was refused, and so has done nothing


def test_patience_ends(flaky):
    flaky.answers = [BUSY] * 50
    with pytest.raises(ServiceError, match="Too many") as caught:
        Client(flaky.url, patience=0.3).learn("m", [[1.0]])
    assert caught.value.status == 429
    with pytest.raises(ServiceError, match="does not answer"):
        Client("http://127.0.0.1:9", patience=0.0).version()


def test_no_secret_in_the_repr():
    assert "secret" not in repr(Client(token="a-secret-token-of-length"))
