"""Everything that the service does when it is used as meant."""

import json
import re

import numpy as np
import pytest

import everlearn
from everlearn.datasets.demo import COLUMNS, demo_stream
from everlearn.persistence.model_file import FORMAT_VERSION, dumps, loads
from service_tools import as_json, http_client, learned

NAMES = list(COLUMNS)


@pytest.fixture(scope="module")
def X():
    return np.concatenate([batch.X for batch in demo_stream(1200, seed=1)])


def teach(client, X):
    """Let the model `machine` of a service learn the rows."""
    for start in range(0, len(X), 300):
        body = {"columns": NAMES, "rows": as_json(X[start : start + 300])}
        assert client.post("/models/machine/learn", json=body).status_code == 202
    learned(client, "machine")
    return client


@pytest.fixture(scope="module")
def taught(module_client, X):
    """A client of a service whose model `machine` has learned 1200 rows; it is only asked."""
    return teach(module_client, X)


@pytest.fixture(scope="module")
def twin(X):
    model = everlearn.IncrementalGaussianMixture()
    for start in range(0, len(X), 300):
        model.partial_fit(X[start : start + 300])
    return model


def test_rows_are_learned_as_partial_fit_would(taught, twin, X):
    model = loads(taught.get("/models/machine/file").content)
    assert model.n_samples_seen_ == 1200
    assert list(model.feature_names_in_) == NAMES
    np.testing.assert_allclose(model.score_samples(X), twin.score_samples(X), rtol=1e-8)


def test_learn_says_what_was_taken(client):
    answer = client.post("/models/a/learn", json={"columns": ["u", "v"], "rows": [[1, 2], [3, None]]})
    assert answer.status_code == 202
    assert answer.json() == {"accepted": 2, "batch": 1, "columns": ["u", "v"]}


def test_columns_come_in_any_order(client):
    client.post("/models/a/learn", json={"columns": ["u", "v"], "rows": [[1, 10], [2, 20]]})
    client.post("/models/a/learn", json={"columns": ["v", "u"], "rows": [[30, 3], [40, 4]]})
    client.post("/models/a/learn", json={"rows": [[5, 50]]})
    columns = {column["name"]: column["mean"] for column in learned(client, "a")["columns"]}
    assert columns == pytest.approx({"u": 3.0, "v": 30.0})


def test_columns_without_names_are_numbered(client):
    assert client.post("/models/a/learn", json={"rows": [[1, 2]]}).json()["columns"] == ["x0", "x1"]


def test_a_key_keeps_a_repeated_batch_from_being_learned_twice(client):
    body = {"columns": ["u"], "rows": [[1.0]] * 10}
    for _ in range(3):
        assert client.post("/models/a/learn", json=body, headers={"Idempotency-Key": "k1"}).json()["batch"] == 1
    client.post("/models/a/learn", json=body, headers={"Idempotency-Key": "k2"})
    assert learned(client, "a")["rows"] == 20


def test_scores(taught, twin, X):
    found = taught.post("/models/machine/score", json={"rows": as_json(X[:5])}).json()
    np.testing.assert_allclose(found["log_density"], twin.score_samples(X[:5]), rtol=1e-8)
    np.testing.assert_allclose(found["p_value"], twin.p_value(X[:5]), rtol=1e-6, atol=1e-12)


def test_predictions(taught, twin):
    body = {"rows": [{"rpm": 600}, {"rpm": 1500, "torque": None}], "target": ["power", "torque"], "coverage": 0.8}
    found = taught.post("/models/machine/predict", json=body).json()
    rows = np.full((2, 6), np.nan)
    rows[:, 0] = [600, 1500]
    mean, std, (low, high) = twin.predict_columns(rows, [2, 1], return_std=True, interval=0.8)
    assert found["columns"] == ["power", "torque"]
    for key, values in (("mean", mean), ("std", std), ("low", low), ("high", high)):
        np.testing.assert_allclose(found[key], values, rtol=1e-6)


def test_the_distribution_of_a_column(taught):
    found = taught.post("/models/machine/condition", json={"rows": [{"rpm": 600}], "target": "torque"}).json()
    x, density = np.array(found["x"]), np.array(found["density"])
    assert abs(density.sum() * (x[1] - x[0]) - 1) < 0.01
    assert found["low"] < found["mean"] < found["high"]
    assert found["coverage"] == 0.9


def test_samples_keep_what_is_given(taught):
    found = taught.post("/models/machine/sample", json={"n_rows": 200, "rows": [{"rpm": 600}]}).json()
    rows = np.array(found["rows"])
    assert found["columns"] == NAMES
    assert set(rows[:, 0]) == {600.0}
    assert abs(rows[:, 1].mean() - 8.0) < 1.0
    assert len(taught.post("/models/machine/sample", json={}).json()["rows"]) == 1


def test_the_summary(taught):
    summary = taught.get("/models/machine").json()
    assert summary["rows"] == 1200
    assert summary["kind"] == "IncrementalGaussianMixture"
    assert [column["name"] for column in summary["columns"]] == NAMES
    assert summary["components"] >= 2
    assert summary["takes_rows"] is True
    assert taught.get("/models").json()["models"][0]["name"] == "machine"


def test_history_spans_the_run(taught):
    points = taught.get("/models/machine/history").json()["intervals"]
    assert points[-1]["end_row"] == 1200
    assert sum(point["n_rows"] for point in points) == 1200
    assert len(taught.get("/models/machine/history?limit=1").json()["intervals"]) == 1


@pytest.mark.parametrize("picture", ["likelihood", "components", "weights", "forgetting", "throughput"])
def test_pictures(taught, picture):
    figure = taught.get(f"/models/machine/pictures/{picture}").json()
    assert figure["data"]
    assert figure["layout"]["meta"]["alt"]


def test_pictures_of_chosen_axes_and_of_a_density(taught):
    figure = taught.get("/models/machine/pictures/components", params={"x": "rpm", "y": "power"}).json()
    assert figure["layout"]["yaxis"]["title"]["text"] == "power"
    figure = taught.post("/models/machine/pictures/density", json={"rows": [{"rpm": 600}], "target": "torque"}).json()
    assert "torque if rpm = 600" in figure["layout"]["meta"]["alt"]


# -- other models ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("IncrementalGaussianMixture", {"forgetting": "adaptive", "max_components": 10}),
        ("IncrementalGaussianMixture", {"n_components": 3}),
        ("OnlinePPCA", {"n_components": 2}),
        ("VariationalPPCA", {"n_components": 2}),
    ],
)
def test_models_of_every_kind(client, X, kind, parameters):
    made = client.put("/models/a", json={"kind": kind, "parameters": parameters, "columns": NAMES})
    assert made.status_code == 201
    assert made.json()["rows"] == 0
    client.post("/models/a/learn", json={"rows": as_json(X[:400])})
    assert learned(client, "a")["rows"] == 400
    assert client.post("/models/a/score", json={"rows": as_json(X[:3])}).status_code == 200
    for path, body in {
        "predict": {"rows": [{"rpm": 900}], "target": ["power"]},
        "condition": {"rows": [{"rpm": 900}], "target": "power"},
        "sample": {"n_rows": 3},
        "pictures/density": {"target": "power"},
    }.items():
        assert client.post(f"/models/a/{path}", json=body).status_code == 200, path
    for picture in ("likelihood", "components", "weights", "forgetting", "throughput"):
        assert client.get(f"/models/a/pictures/{picture}").status_code == 200, picture


@pytest.mark.slow
def test_many_models_learn_side_by_side(client):
    for i in range(40):
        assert client.post(f"/models/m{i % 20}/learn", json={"rows": [[float(i), 1.0]] * 5}).status_code == 202
    assert {learned(client, f"m{i}")["rows"] for i in range(20)} == {10}


def test_a_model_can_be_deleted(client):
    client.post("/models/a/learn", json={"rows": [[1.0]]})
    assert client.delete("/models/a").status_code == 204
    assert client.get("/models/a").status_code == 404
    client.post("/models/a/learn", json={"rows": [[1.0, 2.0]]})
    assert learned(client, "a")["rows"] == 1


# -- merging ---------------------------------------------------------------------------------------


def upload(client, name, data):
    return client.post(f"/models/{name}/merge", content=data, headers={"Content-Type": "application/octet-stream"})


@pytest.mark.slow
def test_a_model_learned_elsewhere_is_merged(client, twin, X):
    teach(client, X)
    elsewhere = everlearn.IncrementalGaussianMixture()
    elsewhere.partial_fit(X + 100.0)
    elsewhere.feature_names_in_ = np.array(NAMES, dtype=object)
    answer = upload(client, "machine", dumps(elsewhere))
    assert answer.status_code == 200, answer.text
    assert answer.json()["rows"] == 2400
    merged = loads(client.get("/models/machine/file").content)
    here = twin.copy()
    here.feature_names_in_ = elsewhere.feature_names_in_
    np.testing.assert_allclose(merged.score_samples(X[:50]), here.merge(elsewhere).score_samples(X[:50]), rtol=1e-6)
    client.post("/models/machine/learn", json={"rows": as_json(X[:7])})
    assert learned(client, "machine")["rows"] == 2407


def test_a_new_name_begins_with_the_uploaded_model(client, taught, X):
    data = taught.get("/models/machine/file").content
    assert upload(client, "copy", data).json()["rows"] == 1200
    client.post("/models/copy/learn", json={"columns": NAMES, "rows": as_json(X[:10])})
    assert learned(client, "copy")["rows"] == 1210


# -- watching --------------------------------------------------------------------------------------


def test_metrics_count(taught):
    text = taught.get("/metrics").text
    assert 'everlearn_rows_learned_total{model="machine"} 1200' in text
    learn = r'everlearn_requests_total\{method="POST",path="/models/\{name\}/learn",status="202"\} (\d+)'
    assert re.search(learn, text)[1] == "4"
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .+|[a-z_]+(\{[^}]*(\{name\})?.*\})? [0-9.e+-]+", line), line


def test_health(client):
    answer = client.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def events_of(url, path, n, headers=None):
    """The first n messages of an event stream as (id, event, data)."""
    found = []
    with http_client() as client, client.stream("GET", f"{url}{path}", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        message = {}
        for line in response.iter_lines():
            key, _, value = line.partition(": ")
            if line:
                message[key] = value
            elif "data" in message:
                found.append((int(message.get("id", 0)), message["event"], json.loads(message["data"])))
                message = {}
                if len(found) == n:
                    return found


@pytest.mark.slow
def test_events_are_streamed_and_resumed(start_service):
    service = start_service()
    rng = np.random.default_rng(0)
    with service.client() as client:
        for shift in (0.0, 50.0, 100.0, -50.0):  # all new: what was seen before is no event
            client.post("/models/a/learn", json={"rows": as_json(rng.normal(size=(800, 2)) + shift)})
            learned(client, "a")
    messages = events_of(service.url, "/models/a/events", 5)
    stored = [message for message in messages if message[1] in ("novelty", "change")]
    assert len(stored) >= 4
    assert [each[0] for each in stored] == sorted({each[0] for each in stored})
    first, second = stored[:2]
    assert events_of(service.url, f"/models/a/events?after={first[0]}", 1)[0] == second
    assert events_of(service.url, "/models/a/events", 1, {"Last-Event-ID": str(first[0])})[0] == second


@pytest.mark.slow
def test_a_deleted_model_ends_its_stream(start_service):
    service = start_service()
    with service.client() as client:
        client.post("/models/a/learn", json={"rows": [[1.0]]})
        with client.stream("GET", "/models/a/events") as response:
            client.delete("/models/a")
            assert list(response.iter_lines()) is not None
    service.stop()


# -- a run of `everlearn learn` ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_written_by_another_program_is_shown(client, state, X):
    from everlearn.streams.session import Session
    from everlearn.streams.store.store import Store

    with Store(state) as store:
        learner = Session(everlearn.IncrementalGaussianMixture(), store=store, name="run", columns=NAMES)
        for start in range(0, 1200, 400):
            learner.learn(X[start : start + 400])
            learner.commit(position={"rows": start + 400})
            assert client.get("/models/run").json()["rows"] == start + 400
    summary = client.get("/models/run").json()
    assert summary["takes_rows"] is False
    assert client.get("/models/run/pictures/components").status_code == 200
    refused = client.post("/models/run/learn", json={"rows": as_json(X[:1])})
    assert refused.status_code == 409
    assert "everlearn learn" in refused.json()["detail"]
    assert client.delete("/models/run").status_code == 409


def written(state, name, model, X, y):
    from everlearn.streams.session import Session
    from everlearn.streams.store.store import Store

    with Store(state) as store:
        learner = Session(model, store=store, name=name, columns=["a", "b"])
        learner.learn(X, y)
        learner.commit(position={"rows": len(X)})
        return store.load(name)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [["good", "bad"], [0, 1]])
def test_a_classifier_answers(client, state, labels):
    rows = np.random.default_rng(0).normal(size=(300, 2))
    y = np.array(labels)[(rows[:, 0] > 0).astype(int)]
    model = written(state, "defects", everlearn.IncrementalGaussianMixtureClassifier(), rows, y)
    answer = client.post("/models/defects/predict", json={"rows": [{"a": 2.0, "b": 0.1}, {"a": -2.0, "b": None}]})
    assert answer.status_code == 200
    asked = np.array([[2.0, 0.1], [-2.0, np.nan]])
    assert answer.json()["classes"] == model.classes_.tolist()
    assert answer.json()["label"] == model.predict(asked).tolist() == [labels[1], labels[0]]
    np.testing.assert_allclose(answer.json()["probability"], model.predict_proba(asked), rtol=1e-12)


def test_a_regressor_answers(client, state):
    rows = np.random.default_rng(0).normal(size=(300, 2))
    y = rows @ [2.0, -1.0] + 5.0
    model = written(state, "torque", everlearn.IncrementalGaussianMixtureRegressor(), rows, y)
    answer = client.post("/models/torque/predict", json={"rows": [{"a": 1.0, "b": 0.5}, {"a": 1.0}], "coverage": 0.5})
    asked = np.array([[1.0, 0.5], [1.0, np.nan]])
    found = answer.json()
    assert found["columns"] == ["target"]
    mean, std = model.predict(asked, return_std=True)
    for key, expected in zip(
        ("mean", "std", "low", "high"), (mean, std, *model.predict_interval(asked, 0.5)), strict=True
    ):
        np.testing.assert_allclose(np.ravel(found[key]), expected, rtol=1e-12)


def test_a_model_with_a_target_refuses_what_it_cannot_do(client, state):
    rows = np.random.default_rng(0).normal(size=(300, 2))
    written(state, "torque", everlearn.IncrementalGaussianMixtureRegressor(), rows, rows.sum(axis=1))
    given = {"a": 1.0}
    for path, body, hint in (
        ("predict", {"rows": [given], "target": ["b"]}, "leave out the field target"),
        ("predict", {"rows": [{"c": 1.0}]}, "'c'"),
        ("score", {"rows": [[1.0, 2.0]]}, "/predict"),
        ("condition", {"rows": [given], "target": "b"}, "only a mixture or a PPCA"),
        ("sample", {"rows": [given]}, "only a mixture or a PPCA"),
    ):
        refused = client.post(f"/models/torque/{path}", json=body)
        assert 400 <= refused.status_code < 500
        assert hint in refused.json()["detail"]
    summary = client.get("/models/torque").json()
    assert (summary["kind"], summary["rows"]) == ("IncrementalGaussianMixtureRegressor", 300)
    for picture in ("likelihood", "throughput"):
        assert client.get(f"/models/torque/pictures/{picture}").status_code == 200
    assert client.get("/models/torque/pictures/components").status_code == 422


def test_a_mixture_must_be_told_what_to_predict(taught):
    refused = taught.post("/models/machine/predict", json={"rows": [{NAMES[0]: 1.0}]})
    assert refused.status_code == 422
    assert "target must name" in refused.json()["detail"]


def test_probes_and_version(client, monkeypatch):
    assert client.get("/livez").json()["status"] == client.get("/readyz").json()["status"] == "ok"
    assert client.get("/version").json() == {"everlearn": everlearn.__version__, "file_format": FORMAT_VERSION}
    repository = client.app.state.repository

    def unreadable():
        raise OSError("Input/output error")

    monkeypatch.setattr(repository.store, "latest_batch", unreadable)
    found = client.get("/readyz")
    assert (found.status_code, found.json()["trouble"]) == (503, "The state file cannot be read.")
    monkeypatch.undo()
    monkeypatch.setattr(repository.learning, "is_alive", lambda: False)
    assert client.get("/readyz").status_code == client.get("/health").status_code == 503
    assert client.get("/livez").status_code == 200  # to be restarted is no help against a disk that cannot be read
