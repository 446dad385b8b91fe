"""Pictures are figures that plotly takes, and show what the model says; reports need nothing but themselves."""

import json
import math
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import plotly.graph_objects as go
import pytest
from scipy.stats import norm

import everlearn
from everlearn.datasets.demo import COLUMNS, demo_stream
from everlearn.errors import InputError
from everlearn.gaussian.mixture import Mixture
from everlearn.reporting import figures as pictures
from everlearn.reporting.projection import ellipse, plane_of
from everlearn.reporting.queries import column_names, condition, curve, mixture_of
from everlearn.reporting.report import render, write_report
from everlearn.reporting.tables import Table
from everlearn.streams.store.records import Event

NAN = math.nan


def named(model, X, names=COLUMNS):
    model.partial_fit(X)
    model.feature_names_in_ = np.array(names, dtype=object)
    return model


@pytest.fixture(scope="module")
def rows():
    return np.concatenate([batch.X for batch in demo_stream(1000, seed=3)])


@pytest.fixture(scope="module")
def models(rows):
    return [
        named(everlearn.IncrementalGaussianMixture(random_state=0), rows),
        named(everlearn.IncrementalGaussianMixture(covariance_type="diag"), rows),
        named(everlearn.OnlinePPCA(2), rows),
        named(everlearn.VariationalPPCA(2), rows),
    ]


def point(end_row, log_likelihood=-3.0, forgetting=NAN, memory=10.0, seconds=0.5):
    return SimpleNamespace(
        end_row=end_row,
        n_rows=100,
        seconds=seconds,
        log_likelihood=log_likelihood,
        n_scored=100,
        forgetting=forgetting,
        memory=memory,
    )


HISTORIES = {
    "empty": [],
    "one": [point(100)],
    "unknown": [point(100, NAN, NAN, NAN, 0.0), point(200, NAN, NAN, NAN, 0.0)],
    "usual": [point(100 * i, -9 + i, 0.99, 50.0) for i in range(1, 9)],
}
EVENTS = [SimpleNamespace(row=150, kind="change", value=-8.0), SimpleNamespace(row=160, kind="novelty", value=70.0)]


def checked(picture):
    """A picture survives strict JSON and plotly's own validation, and says what it shows."""
    assert json.loads(json.dumps(picture, allow_nan=False)) == picture
    assert len(picture["layout"]["meta"]["alt"]) > 20
    return go.Figure(picture)


def test_the_column_to_blame_comes_first_in_its_picture():
    rng = np.random.default_rng(0)
    detector = named(everlearn.AnomalyDetector(), rng.normal(size=(600, 3)), ("rpm", "torque", "temp"))
    picture = pictures.blame(detector.explain([[0.0, 9.0, 0.0]]))
    checked(picture)
    (bars,) = picture["data"]
    assert bars["y"][0] == "torque"
    assert bars["x"] == sorted(bars["x"], reverse=True)
    assert bars["customdata"][0].startswith("9, expected ")
    assert "torque 9" in picture["layout"]["meta"]["alt"]


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_pictures_of_a_run(history):
    figure = checked(pictures.likelihood(history, EVENTS))
    by_name = {trace.name: trace for trace in figure.data}
    assert by_name["change"].x[0] == 150
    assert by_name["novelty"].x == (160,)
    assert by_name["log-likelihood"].x == tuple(float(each.end_row) for each in history)
    checked(pictures.forgetting(history))
    checked(pictures.throughput(history))


def test_throughput_is_rows_a_second():
    assert pictures.throughput([point(100, seconds=0.5)])["data"][0]["y"] == [200.0]


def test_forgetting_without_a_factor_says_so():
    assert "forgets nothing" in pictures.forgetting([point(100)])["layout"]["meta"]["alt"]
    assert "0.9900" in pictures.forgetting(HISTORIES["usual"])["layout"]["meta"]["alt"]


def test_a_far_outlier_does_not_squeeze_the_curve():
    history = [point(100 * i, -1e6 if i == 50 else -5.0 + math.sin(i)) for i in range(1, 101)]
    low, high = pictures.likelihood(history)["layout"]["yaxis"]["range"]
    assert -15 < low < -5.5
    assert -4.5 < high < 0


def test_pictures_of_models(models):
    for model in models:
        checked(pictures.weights(model))
        checked(pictures.components(model))
        picture = pictures.components(model, ["rpm", "power"])
        checked(picture)
        assert picture["layout"]["xaxis"]["title"]["text"] == "rpm"
        checked(pictures.density(model, {"rpm": 600.0}, "torque"))


@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_few_columns(n_columns):
    X = np.random.default_rng(0).normal(size=(300, n_columns))
    checked(pictures.components(everlearn.IncrementalGaussianMixture().fit(X)))


def test_wide_models_show_the_columns_that_tell_components_apart():
    means = np.zeros((2, 600))
    means[1, [5, 17]] = 20.0
    wide = Mixture(np.array([0.5, 0.5]), means, np.ones((2, 600)))
    plane = plane_of(SimpleNamespace(n_features_in_=600), wide, None)
    assert set(plane.columns) == {"x5", "x17"}
    assert plane.mixture.covariances.shape == (2, 2, 2)


def test_an_ellipse_holds_its_share():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2, 2))
    X = rng.normal(size=(20000, 2)) @ A.T + [3.0, -1.0]
    ring = ellipse(np.array([3.0, -1.0]), A @ A.T, 0.9) - [3.0, -1.0]
    radius = np.linalg.norm(ring @ np.linalg.inv(A).T, axis=1)
    assert np.ptp(radius) < 1e-9
    inside = np.linalg.norm((X - [3.0, -1.0]) @ np.linalg.inv(A).T, axis=1) < radius[0]
    assert abs(inside.mean() - 0.9) < 0.01


def test_principal_axes_are_those_of_the_standardised_rows():
    rng = np.random.default_rng(1)
    X = (rng.normal(size=(4000, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(4000, 4))) * [1, 10, 100, 1000]
    model = everlearn.IncrementalGaussianMixture(1).fit(X)
    plane = plane_of(model, mixture_of(model), None)
    values = np.linalg.eigvalsh(np.corrcoef(X.T))[::-1]
    np.testing.assert_allclose(np.diag(plane.mixture.covariances[0]), values[:2], rtol=0.02)


def test_axes_are_checked(models):
    with pytest.raises(InputError, match="two columns"):
        pictures.components(models[0], ["rpm"])
    with pytest.raises(InputError, match="no column of the model"):
        pictures.components(models[0], ["rpm", "tork"])


# -- questions ---------------------------------------------------------------------------------------


def test_a_curve_is_a_density_with_its_mean(models):
    for model in models:
        found = curve(model, {"rpm": 1500.0}, "power")
        step = found.x[1] - found.x[0]
        mass = found.density.sum() * step
        assert abs(mass - 1) < 0.01
        assert abs((found.x * found.density).sum() * step / mass - found.mean) < 0.1 * found.std
        inside = (found.x >= found.low) & (found.x <= found.high)
        assert abs(found.density[inside].sum() * step - 0.9) < 0.03


def test_ppca_is_conditioned_as_the_gaussian_it_is(models):
    model = models[2]
    C, mean, names = model.get_covariance(), model.mean_, column_names(model)
    g, t = names.index("rpm"), names.index("power")
    slope = C[t, g] / C[g, g]
    answer = condition(model, {"rpm": 900.0}, ["power"])
    assert answer.mean()[0, 0] == pytest.approx(mean[t] + slope * (900.0 - mean[g]))
    assert answer.std()[0, 0] == pytest.approx(math.sqrt(C[t, t] - slope * C[g, t]))
    low, _ = answer.interval(0.9)
    assert low[0, 0] == pytest.approx(norm.ppf(0.05, answer.mean()[0, 0], answer.std()[0, 0]))


def test_gaps_among_the_known_are_not_known(models):
    for model in models:
        with_gap = condition(model, {"rpm": 900.0, "torque": NAN}, ["power"]).mean()
        np.testing.assert_allclose(with_gap, condition(model, {"rpm": 900.0}, ["power"]).mean(), rtol=1e-9)


@pytest.mark.parametrize(
    ("given", "target", "message"),
    [
        ({"rpm": 1.0}, ["rpm"], "share a column"),
        ({"rpm": math.inf}, ["power"], "infinite"),
        ({"speed": 1.0}, ["power"], "no column"),
        ({}, [], "at least one"),
    ],
)
def test_bad_questions_are_explained(models, given, target, message):
    for model in models:
        with pytest.raises(InputError, match=message):
            condition(model, given, target)


# -- reports ---------------------------------------------------------------------------------------


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.scripts = [], 0

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.found += [value for name, value in attrs if name in ("src", "href", "action")]


def test_a_report_stands_alone(tmp_path, models):
    write_report(tmp_path / "out.html", models[0], HISTORIES["usual"], EVENTS, name="pump", totals={"rows": 900})
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    links = Links()
    links.feed(text)
    assert links.found == []
    assert "default-src 'none'" in text
    assert "<dd>900</dd>" in text
    for key in ("likelihood", "components", "weights", "forgetting", "throughput", "column0"):
        assert f'id="{key}"' in text


def test_names_cannot_break_out_of_a_report(rows):
    evil = "</script><script>alert(1)</script><b>"
    model = named(everlearn.IncrementalGaussianMixture(), rows[:300], [evil, *COLUMNS[1:]])
    links = Links()
    links.feed(text := render(model, HISTORIES["usual"], EVENTS, name=evil))
    assert links.scripts == 2
    assert not re.search(r"<script>alert", text)


def test_a_model_that_learned_nothing_is_reported(tmp_path):
    write_report(tmp_path / "out.html", everlearn.IncrementalGaussianMixture(), [])
    assert "none yet" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_a_report_begins_with_what_was_found(models):
    found = Table(
        ("fault", "found"), [("belt <slips>", 3)], "Faults, found before they were learned", "No false alarms."
    )
    text = render(models[0], HISTORIES["usual"], EVENTS, findings=[found])
    assert "<h2>Faults, found before they were learned</h2>" in text
    assert "belt &lt;slips&gt;" in text
    assert "No false alarms." in text
    assert text.index("No false alarms.") < text.index('id="likelihood"')


def test_a_detectors_scores_and_anomalies_have_their_names():
    """The mean of log p-values, always about -1, is no log-likelihood."""
    found = [Event(100, "anomaly", 1e-5, {"last": 105, "column": "heat"}), Event(150, "new_normal", 50.0)]
    figure = checked(pictures.likelihood([point(100), point(200)], found, score="mean log p-value"))
    names = {trace.name for trace in figure.data}
    assert names == {"change", "mean log p-value", "anomaly"}
    assert figure.layout.yaxis.title.text == "mean log p-value"
    assert "1 change and 1 anomaly are marked" in figure.layout.meta["alt"]
