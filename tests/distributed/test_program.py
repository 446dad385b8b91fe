"""everlearn learn --workers and --cluster."""

import numpy as np
import pytest
from click.testing import CliRunner

import everlearn
from everlearn import cli
from everlearn.persistence.model_file import dumps


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for day in range(3):
        X = rng.normal(size=(400, 2)) + 6.0 * rng.integers(2, size=(400, 1))
        np.savetxt(f"day-{day}.csv", X, delimiter=",", header="rpm,temp", comments="")

    def command(*arguments, status=0):
        result = CliRunner().invoke(cli.main, ["learn", *arguments])
        assert result.exit_code == status, result.output
        return result.output

    return command


@pytest.mark.slow
def test_files_are_learned_apart_and_merged(run):
    output = run("day-*.csv", "--workers", "1", "--model-file", "days.evl")
    assert "1,200 rows of 3 partitions" in output
    assert "day-2.csv" in output
    assert "Saved to days.evl" in output
    model = everlearn.load("days.evl")
    assert list(model.feature_names_in_) == ["rpm", "temp"]
    same, _ = everlearn.distributed.fit(everlearn.IncrementalGaussianMixture(random_state=0), "day-*.csv", workers=1)
    assert dumps(model) == dumps(same)
    run("day-*.csv", "--workers", "1", "--columns", "te*", "--model", "ppca", "--set", "n_components=1", "--quiet")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["day-0.csv", "--workers", "1", "--state", "run.db"], 2, "--state belongs to a stream"),
        (["day-0.csv", "--workers", "1", "--scores", "out.csv"], 2, "--scores belongs to a stream"),
        (["--demo", "--workers", "2"], 2, "--demo belongs to a stream"),
        (["day-0.csv", "--workers", "2", "--cluster", "tcp://host:1"], 2, "and not both"),
        (["day-0.csv", "--workers", "0"], 2, "--workers"),
        (["nights-*.csv", "--workers", "1"], 1, "No file matches"),
        (["day-0.csv", "--cluster", "pigeon://roof"], 1, "did not answer"),
        (["day-*.csv", "--workers", "1", "--columns", "speed"], 1, "no column 'speed'"),
    ],
)
def test_refusals(run, arguments, status, message):
    assert message in " ".join(run(*arguments, status=status).split())
