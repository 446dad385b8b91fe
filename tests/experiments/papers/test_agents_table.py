"""Table 5 of the FIGMN paper, on outcomes that are made up."""

import json

import pytest

from everlearn.agents import comparison
from everlearn.experiments.papers import Context, choose, run_item

pytestmark = pytest.mark.slow

PACE = {"cart-pole": 100, "mountain-car": 300, "acrobot": 200}


def table(monkeypatch, starts, *, quick=True):
    def run(name, task, seed, *, max_episodes, **settings):
        return comparison.Outcome(starts(name, task, seed), max_episodes, 0.0, 0.0, 0)

    monkeypatch.setattr(comparison, "run", run)
    (item,) = choose(["figmn:table5"])
    found = run_item(item, Context(quick=quick))
    json.dumps(found, allow_nan=False)
    return found


def test_a_mixture_that_is_fast_reproduces_the_table(monkeypatch):
    found = table(monkeypatch, lambda name, task, seed: PACE[task] * (1 if name == "mixture" else 2), quick=False)
    assert [claim["verdict"] for claim in found["claims"]] == ["reproduced"] * 4 + ["not reproduced"]  # DQN is slower
    rows = {row[0]: row[1:] for row in found["tables"][0]["rows"]}
    assert rows["acrobot"][0]["ours"] == 200.0
    assert rows["acrobot"][0]["printed"] == "301.60 ± 69.12"
    assert found["n_runs"] == 10
    assert found["tables"][1]["rows"][2][1] == "200 (200 to 200), 10 of 10"
    assert "3 actions and 6" in found["about"]


def test_runs_that_failed_are_counted(monkeypatch):
    found = table(monkeypatch, lambda name, task, seed: None if name == "Sarsa" or seed == 200 else PACE[task])
    assert found["verdict"] == "not reproduced"
    cells = found["tables"][0]["rows"][0][1:]
    assert cells[0]["mark"] == "(1 of 2)"
    assert cells[1] == "not solved (0 of 1); printed 557"


@pytest.mark.parametrize("factor", [1, 3])
def test_a_slow_mixture_does_not(monkeypatch, factor):
    found = table(monkeypatch, lambda name, task, seed: factor * PACE[task] * (1 if name == "mixture" else 2))
    assert (found["claims"][1]["verdict"] == "reproduced") == (factor == 1)


def test_every_learner_has_the_same_budget_and_seeds(monkeypatch):
    asked = set()

    def run(name, task, seed, *, max_episodes, **settings):
        # Sarsa is best with its largest step on the seeds for tuning: with that it must be judged.
        if seed >= 100:
            asked.add((name, task, seed, max_episodes))
            assert name != "Sarsa" or settings["alpha"] in (1.0, 0.4)
        return comparison.Outcome(int(100 - 50 * settings.get("alpha", 0)), 105, 0.0, 0.0, 0)

    monkeypatch.setattr(comparison, "run", run)
    (item,) = choose(["figmn:table5"])
    found = run_item(item, Context())
    tuning = found["tables"][2]
    assert len(tuning["rows"]) == 18
    assert [row[0] for row in tuning["rows"] if row[3]["mark"]] == list(PACE)
    names = {name for name, *_ in asked}
    assert names == set(comparison.LEARNERS)
    assert asked == {(n, t, s, 1000) for n in names for t in PACE for s in range(200, 210)}


def test_an_unsolved_run_counts_for_its_budget(monkeypatch):
    # Sarsa solves half of its runs at once: without the others it would look faster than the mixture.
    found = table(
        monkeypatch,
        lambda name, task, seed: (None if seed % 2 else 10) if name == "Sarsa" else PACE[task],
        quick=False,
    )
    assert found["claims"][3]["verdict"] == "reproduced"
    assert "cart-pole: 100.0 against 505.0" in found["claims"][3]["found"]
