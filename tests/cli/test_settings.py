"""Every setting of every model that `everlearn learn --set` can make: stored, and with the answers of Python's."""

import numpy as np
import pytest
from click.testing import CliRunner

import everlearn
from everlearn import IncrementalGaussianMixture, NaturalConstraint, PageHinkley, PowerSchedule, cli
from everlearn.cli.models import KINDS, SUPERVISED
from everlearn.ppca.keep import Every, OnChange

rng = np.random.default_rng(0)
X = np.round(rng.normal(size=(90, 3)) @ [[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 1.0]], 6)
LABEL = np.where(X[:, 0] > 0.0, "up", "down")

MIXTURE = {
    "n_components": ("2", 2),
    "max_components": ("3", 3),
    "reservoir": ("0", 0),
    "covariance_type": ("diag", "diag"),
    "rank": ("1", 1),
    "forgetting": ("0.1", 0.1),
    "scale": ("[1, 2, 3]", [1, 2, 3]),
}
SETTINGS = {
    "mixture": {
        **MIXTURE,
        "novelty_level": ("0.01", 0.01),
        "change_detector": ("PageHinkley(threshold=12, min_rows=40)", PageHinkley(threshold=12, min_rows=40)),
        "random_state": ("7", 7),
        "verbose": ("1", 1),
    },
    "detector": {
        "false_alarm_rate": ("0.01", 0.01),
        "contamination": ("0.05", 0.05),
        "learning": ("always", "always"),
        "patience": ("50", 50),
        "grace_period": ("30", 30),
        "model": ("IncrementalGaussianMixture(max_components=2)", IncrementalGaussianMixture(max_components=2)),
        "random_state": ("7", 7),
    },
    "ppca": {
        "n_components": ("1", 1),
        "learning_rate": ("PowerSchedule(0.5, 0.6)", PowerSchedule(0.5, 0.6)),
        "constraint": ("NaturalConstraint(2.0, Every(25))", NaturalConstraint(2.0, Every(25))),
        "warmup": ("20", 20),
        "mode": ("plain", "plain"),
        "random_state": ("7", 7),
        "verbose": ("1", 1),
    },
    "variational": {
        "n_components": ("1", 1),
        "forgetting": ("0.05", 0.05),
        "noise_variance": ("0.5", 0.5),
        "mode": ("paper", "paper"),
        "prior_precision": ("0.1", 0.1),
        "prior_mean": ("[[0.5], [0], [0.1]]", [[0.5], [0], [0.1]]),
        "keep_probability": ("0.3", 0.3),
        "trace": ("5", 5),
        "random_state": ("7", 7),
        "verbose": ("1", 1),
    },
    "classifier": MIXTURE,
    "regressor": {**{name: value for name, value in MIXTURE.items() if name != "rank"}, "verbose": ("1", 1)},
}
# Settings that a model refuses without others, and those.
WITH = {
    ("variational", "mode"): {"noise_variance": 0.5},
    ("variational", "prior_mean"): {"mode": "paper", "noise_variance": 0.5, "n_components": 1},
}
CASES = [(kind, name) for kind, settings in SETTINGS.items() for name in settings]


@pytest.fixture
def learn(tmp_path, monkeypatch):
    """Learn the rows by the program; returns what it said, and the model that it saved, if any."""
    monkeypatch.chdir(tmp_path)
    with open("rows.csv", "w") as file:
        file.write("a,b,c,label\n")
        file.writelines(f"{a},{b},{c},{y}\n" for (a, b, c), y in zip(X, LABEL, strict=True))

    def run(kind, *settings, status=0):
        target = {"classifier": ["--target", "label"], "regressor": ["--target", "c"]}.get(kind, [])
        columns = [] if kind == "classifier" else ["--columns", "a,b,c"]
        arguments = ["learn", "rows.csv", "--model", kind, "--model-file", "model.evl", *target, *columns]
        for text in settings:
            arguments += ["--set", text]
        result = CliRunner().invoke(cli.main, arguments)
        assert result.exit_code == status, result.output
        return result.output, everlearn.load("model.evl") if status == 0 else None

    return run


def learned(kind, name, value):
    """The same model by Python: random numbers as the program seeds them."""
    model = getattr(everlearn, KINDS[kind])()
    seeded = {"random_state": 0} if "random_state" in model.get_params(deep=False) else {}
    model.set_params(**{**seeded, **WITH.get((kind, name), {}), name: value})
    if kind not in SUPERVISED:
        return model.partial_fit(X)
    return model.partial_fit(X, LABEL) if kind == "classifier" else model.partial_fit(X[:, :2], X[:, 2])


def answers(kind, model):
    """What a model says of the rows."""
    if kind == "classifier":
        return model.predict_proba(X)
    return model.predict(X[:, :2]) if kind == "regressor" else model.score_samples(X)


def is_same(a, b):
    """Whether two parameters are equal; models among them by their own parameters."""
    if hasattr(a, "get_params"):
        return type(a) is type(b) and a.get_params() == b.get_params()
    return np.array_equal(a, b) if isinstance(b, list) else a == b


def test_every_setting_of_every_model_is_here():
    for kind, name in KINDS.items():
        known = set(getattr(everlearn, name)().get_params(deep=False))
        assert set(SETTINGS[kind]) == known - {"device"}, kind  # see below


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_setting_does_in_the_program_what_it_does_in_python(kind, name, learn):
    text, value = SETTINGS[kind][name]
    assert not is_same(getattr(everlearn, KINDS[kind])().get_params(deep=False)[name], value)
    others = [f"{other}={setting}" for other, setting in WITH.get((kind, name), {}).items()]
    _, model = learn(kind, *others, f"{name}={text}")
    assert is_same(model.get_params(deep=False)[name], value)
    np.testing.assert_allclose(answers(kind, model), answers(kind, learned(kind, name, value)), rtol=1e-9, atol=1e-9)


def test_objects_may_hold_others(learn):
    _, model = learn("ppca", "constraint=NaturalConstraint(reference=OnChange(PageHinkley(drift=0.2)))")
    assert model.constraint == NaturalConstraint(reference=OnChange(PageHinkley(drift=0.2)))


@pytest.mark.parametrize(
    ("kind", "text", "said", "status"),
    [
        ("mixture", "change_detector=PageHinkley(height=3)", "PageHinkley", 2),
        ("mixture", "change_detector=PageHinkley(threshold=-1)", "threshold > 0", 1),
        ("mixture", "change_detector=__import__('os')", "change_detector", 2),
        ("ppca", "learning_rate=exp(1)", "learning_rate", 2),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(kind, text, said, status, learn):
    assert said in learn(kind, text, status=status)[0]


@pytest.mark.torch
def test_a_device(learn):
    _, model = learn("mixture", "device=cpu")
    assert model.device == "cpu"
    np.testing.assert_allclose(model.score_samples(X), learn("mixture")[1].score_samples(X), rtol=1e-9, atol=1e-9)
