"""Classifiers, regressors and detectors taught and asked over HTTP, with rows of one shape."""

import json

import numpy as np
import pytest

import everlearn
from everlearn.persistence.model_file import dumps
from everlearn.streams.store.store import Store
from service_tools import as_json, learned

CLASSIFIER, REGRESSOR = "IncrementalGaussianMixtureClassifier", "IncrementalGaussianMixtureRegressor"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2)) + np.repeat([[0, 0], [4, 4], [0, 6]], 100, axis=0)
CLASSES = np.repeat(["good", "worn", "out of order"], 100)
ORDER = RNG.permutation(300)


def make(client, name, kind, **fields):
    answer = client.put(f"/models/{name}", json={"kind": kind, "columns": ["u", "v"], **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def teach(client, name, rows, targets, columns=("u", "v")):
    body = {"columns": list(columns), "rows": as_json(rows), "targets": targets}
    answer = client.post(f"/models/{name}/learn", json=body)
    assert answer.status_code == 202, answer.text


def refusal(answer):
    assert answer.status_code == 422, answer.text
    return answer.json()["detail"]


def test_a_classifier_learns_text_labels(client):
    assert make(client, "wear", CLASSIFIER, target="state")["target"] == "state"
    for part in np.array_split(ORDER, 4):
        teach(client, "wear", X[part], CLASSES[part].tolist())
    assert learned(client, "wear")["rows"] == 300
    found = client.post("/models/wear/predict", json={"rows": [[0, 0], [4, 4], [None, 6]]}).json()
    assert found["label"] == ["good", "worn", "out of order"]
    direct = everlearn.IncrementalGaussianMixtureClassifier().partial_fit(X[ORDER], CLASSES[ORDER])
    expected = direct.predict_proba([[0.0, 0.0], [4.0, 4.0]])
    np.testing.assert_allclose(found["probability"][:2], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("labels", "other"), [([True, False], [1, 0]), ([3, 7], ["3", "7"])])
def test_labels_stay_of_one_kind(client, labels, other):
    make(client, "m", CLASSIFIER)
    teach(client, "m", [[0, 0], [5, 5]], labels)
    body = {"rows": [[0, 0], [5, 5]], "targets": other}
    assert "The targets of this model are" in refusal(client.post("/models/m/learn", json=body))
    assert learned(client, "m")["rows"] == 2
    assert client.post("/models/m/predict", json={"rows": [[5, 5]]}).json()["classes"] == sorted(labels)


def test_a_regressor_learns_numbers(client):
    make(client, "power", REGRESSOR, target="watts")
    y = 3 * X[:, 0] - X[:, 1]
    teach(client, "power", X[ORDER][:, ::-1], y[ORDER].tolist(), columns=("v", "u"))
    learned(client, "power")
    body = {"columns": ["v", "u"], "rows": [[0.5, 1.0]]}
    found = client.post("/models/power/predict", json=body).json()
    assert found["columns"] == ["watts"]
    assert found["mean"][0][0] == pytest.approx(2.5, abs=0.05)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"rows": [[1, 2]]}, "give its value for each row in the field targets"),
        ({"rows": [[1, 2]], "targets": ["a", "b"]}, "2 targets and 1 rows"),
        ({"rows": [[1, 2]], "targets": [None]}, "targets[0]: give text"),
        ({"rows": [[1, 2]], "targets": [float(10**30)]}, "whole numbers"),
        ({"rows": [[1, 2], [3, 4]], "targets": ["a", 1]}, "several kinds"),
        ({"rows": [[1, 2]], "targets": [1.5]}, "got 1.5"),
        ({"rows": [[1, 2]], "targets": []}, "targets"),
    ],
)
def test_bad_targets(client, body, words):
    make(client, "m", CLASSIFIER)
    assert words in refusal(client.post("/models/m/learn", json=body))


def test_targets_go_with_models_that_have_one(client):
    body = {"rows": [[1, 2]], "targets": ["a"]}
    assert "with PUT" in refusal(client.post("/models/new/learn", json=body))
    client.post("/models/m/learn", json={"rows": [[1, 2]]})
    assert "has no target" in refusal(client.post("/models/m/learn", json=body))
    new = {"kind": "AnomalyDetector", "columns": ["u"], "target": "t"}
    assert "has no target" in refusal(client.put("/models/n", json=new))
    new = {"kind": CLASSIFIER, "columns": ["u"], "target": "u"}
    assert "Name them apart" in refusal(client.put("/models/n", json=new))


def test_targets_wait_on_the_disk_with_their_rows(state, open_client):
    first = open_client()
    make(first, "m", CLASSIFIER)
    first.__exit__(None, None, None)
    with Store(state) as store:
        store.put([("m", X[:2]), ("m", X[100:101])], keys=["k", None], targets=[["a", "a"], ["b"]])
        assert [batch.y for batch in store.take("m")] == [["a", "a"], ["b"]]
        assert store.put([("m", X[:2])], keys=["k"], targets=[["a", "a"]]) == [1]
    client = open_client()
    assert learned(client, "m")["rows"] == 3
    assert client.post("/models/m/predict", json={"rows": [[4, 4]]}).json()["classes"] == ["a", "b"]
    assert client.delete("/models/m").status_code == 204
    with Store(state) as store:
        assert store._file.query("SELECT count(*) FROM inbox_target") == [(0,)]


def test_a_classifier_learned_elsewhere_goes_on_here(client):
    model = everlearn.IncrementalGaussianMixtureClassifier().partial_fit(X, CLASSES)
    answer = client.post("/models/m/merge", content=dumps(model), headers={"Content-Type": "application/octet-stream"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["target"] == "target"
    teach(client, "m", X[:3], ["good"] * 3, columns=("x0", "x1"))
    assert learned(client, "m")["rows"] == 303
    body = {"rows": [[1, 2]], "targets": [3]}
    assert "are text" in refusal(client.post("/models/m/learn", json=body))


# -- one shape of rows -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(1).multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=300)


def test_lists_and_objects_are_the_same_rows(client, rows):
    client.post("/models/a/learn", json={"columns": ["u", "v"], "rows": as_json(rows)})
    objects = [{"v": v, "u": u} for u, v in as_json(rows)]
    objects[3].pop("v")
    client.post("/models/b/learn", json={"rows": objects})
    assert [column["name"] for column in learned(client, "b")["columns"]] == ["v", "u"]
    learned(client, "a")
    questions = {
        "score": ({"columns": ["v", "u"], "rows": [[None, 1.0]]}, {"rows": [{"u": 1.0}]}),
        "predict": ({"columns": ["u"], "rows": [[1.0]], "target": ["v"]}, {"rows": [{"u": 1}], "target": ["v"]}),
        "condition": ({"columns": ["u"], "rows": [[1.0]], "target": "v"}, {"rows": [{"u": 1}], "target": "v"}),
    }
    for path, bodies in questions.items():
        first, second = (client.post(f"/models/a/{path}", json=body) for body in bodies)
        assert first.status_code == 200, first.text
        assert first.json() == second.json()
    drawn = client.post("/models/a/sample", json={"n_rows": 2, "columns": ["v"], "rows": [[0.5]]}).json()
    assert [row[1] for row in drawn["rows"]] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("learn", {"columns": ["u"], "rows": [{"u": 1}]}, "Leave it out"),
        ("learn", {"rows": [{"u": 1, "w": 2}]}, "rows[0] has 'w'"),
        ("learn", {"rows": [{"u": 1}, [1, 2]]}, "rows[1]"),
        ("learn", {"rows": [{"u": "warm"}]}, "rows[0].u"),
        ("score", {"columns": ["u"], "rows": [[1]]}, "missing: v"),
        ("condition", {"rows": [[1, None], [2, None]], "target": "v"}, "rows"),
        ("sample", {"rows": [{"u": 1}, {"u": 2}]}, "rows"),
        ("predict", {"rows": [{"w": 1}], "target": ["u"]}, "'w'"),
    ],
)
def test_bad_shapes(client, path, body, words):
    client.post("/models/a/learn", json={"columns": ["u", "v"], "rows": [[1, 2]]})
    learned(client, "a")
    assert words in refusal(client.post(f"/models/a/{path}", json=body))


def test_objects_without_columns_make_no_model(client):
    assert "names no column" in refusal(client.post("/models/new/learn", json={"rows": [{}]}))
    assert client.get("/models").json()["n_models"] == 0


# -- detectors ---------------------------------------------------------------------------------------


def test_a_detector_blames_a_column(client, rows, tmp_path):
    make(client, "pump", "AnomalyDetector", parameters={"random_state": 0})
    client.post("/models/pump/learn", json={"columns": ["u", "v"], "rows": as_json(rows)})
    assert learned(client, "pump")["kind"] == "AnomalyDetector"
    asked = {"rows": [[0.1, 0.2], [0.0, 9.0]], "alarm": 1e-3}
    found = client.post("/models/pump/score", json=asked).json()
    assert found["log_density"] is None
    assert found["p_value"][0] > 1e-2 > 1e-4 > found["p_value"][1]
    np.testing.assert_allclose(np.exp(found["score"]), found["p_value"])
    assert (found["column"], found["value"]) == ([None, "v"], [None, 9.0])
    assert found["low"][1] < 0 < found["high"][1] < 9
    assert client.post("/models/pump/score", json=asked).json() == found  # asking changes nothing


def test_a_detectors_events_and_scores_have_their_names(client, rows):
    make(client, "pump", "AnomalyDetector", parameters={"grace_period": 200})
    X = np.random.default_rng(0).normal(size=(500, 2))
    X[400:405, 1] += 20.0
    client.post("/models/pump/learn", json={"columns": ["u", "v"], "rows": as_json(X)})
    found = learned(client, "pump")
    assert found["log_likelihood"] is None
    assert -2.0 < found["mean_log_p_value"] < 0.0
    picture = client.get("/models/pump/pictures/likelihood").json()
    marks = {trace["name"]: trace["x"] for trace in picture["data"]}
    assert 400 in marks["anomaly"]
    assert "mean log p-value" in marks
    events = client.app.state.repository.store.latest_events("pump", kinds=["anomaly"])
    (event,) = [event for event in events if event.row == 400]
    assert event.details["column"] == "v"
    assert event.details["last"] >= 404
    assert event.details["text"].startswith("v ")


def test_a_detector_answers_as_the_program_does(client, rows, tmp_path):
    from click.testing import CliRunner

    from everlearn.cli import main

    make(client, "pump", "AnomalyDetector", parameters={"random_state": 0})
    client.post("/models/pump/learn", json={"columns": ["u", "v"], "rows": as_json(rows)})
    learned(client, "pump")
    (tmp_path / "pump.evl").write_bytes(client.get("/models/pump/file").content)
    (tmp_path / "new.csv").write_text("u,v\n0.1,0.2\n0,9\n")
    out = tmp_path / "scores.jsonl"
    done = CliRunner().invoke(main, ["score", str(tmp_path / "pump.evl"), str(tmp_path / "new.csv"), "-o", str(out)])
    assert done.exit_code == 0, done.output
    found = client.post("/models/pump/score", json={"rows": [[0.1, 0.2], [0, 9]]}).json()
    for i, line in enumerate(map(json.loads, out.read_text().splitlines())):
        for field in ("score", "p_value", "value", "low", "high"):
            assert line[field] == pytest.approx(found[field][i])
        assert (line["column"] or None) == found["column"][i]
