"""What a model file says about its model: read without loading it, kept by copies and merges, hostile files refused."""

import json
import time

import numpy as np
import pandas as pd
import pytest

import everlearn
from everlearn import IncrementalGaussianMixture, IncrementalGaussianMixtureClassifier, OnlinePPCA
from everlearn.errors import InputError, ModelFileError
from everlearn.persistence import metadata
from golden_models import FOLDER
from model_files import parts, rebuilt
from toys import fitted


def learned(n=600, seed=0, **parameters):
    rows = np.random.default_rng(seed).normal([20.0, 1.0], [1.0, 0.1], (n, 2))
    return IncrementalGaussianMixture(**parameters).partial_fit(pd.DataFrame(rows, columns=["temp [°C]", "load"]))


def test_a_file_says_where_its_model_came_from(tmp_path):
    before = time.time()
    learned().save(tmp_path / "m.evl", tags={"site": "north"}, units={"load": "kN"})
    found = everlearn.read_metadata(tmp_path / "m.evl")
    assert found["kind"] == "IncrementalGaussianMixture"
    assert found["version"] == everlearn.__version__
    assert (found["rows"], found["keeps_rows"], found["tags"]) == (600, True, {"site": "north"})
    assert found["bytes"] == (tmp_path / "m.evl").stat().st_size
    assert before - 1 <= metadata._seconds(found["created"]) <= metadata._seconds(found["last_row"]) <= time.time()
    assert [(column["name"], column["unit"]) for column in found["columns"]] == [("temp [°C]", "°C"), ("load", "kN")]
    temp = found["columns"][0]
    assert (temp["low"], temp["high"]) == (pytest.approx(17, abs=0.3), pytest.approx(23, abs=0.3))
    json.dumps(found)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_values_near_the_largest_number_can_be_saved(tmp_path):
    """JSON has no infinity: a range that reaches it ends at the largest number."""
    model = IncrementalGaussianMixture().partial_fit([[1.0], [1.0], [2.0], [1e308]])
    model.save(tmp_path / "m.evl")
    assert everlearn.load(tmp_path / "m.evl").n_samples_seen_ == 4
    for mean, std in ((1.0, np.inf), (1e308, 1e308), (np.inf, np.inf)):
        assert np.isfinite(metadata._usual_range(mean, std)).all()
    assert metadata._usual_range(1.0, 2.0) == (-5.0, 7.0)


def test_ranges_are_those_of_the_rows(tmp_path):
    """Rows since a component was last refreshed count in full: its mean has moved, and its scatter is about the old."""
    X = np.random.default_rng(0).normal([5.0, -2.0], [1.0, 0.1], size=(1900, 2))
    IncrementalGaussianMixture(1).fit(X).save(tmp_path / "m.evl")
    found = [(column["low"], column["high"]) for column in everlearn.read_metadata(tmp_path / "m.evl")["columns"]]
    expected = np.transpose(X.mean(axis=0) + 3.0 * np.array([[-1.0], [1.0]]) * X.std(axis=0))
    np.testing.assert_allclose(found, expected, atol=0.003)


def test_a_classifier_says_when_it_was_made(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    IncrementalGaussianMixtureClassifier().fit(X, X[:, 0] > 0).save(tmp_path / "m.evl")
    found = everlearn.read_metadata(tmp_path / "m.evl")
    assert metadata._seconds(found["created"]) == metadata._seconds(found["last_row"])


def test_no_model_is_built_to_read_it(tmp_path, monkeypatch):
    learned().save(tmp_path / "m.evl")
    monkeypatch.setattr(IncrementalGaussianMixture, "_check_loaded", None)
    assert everlearn.read_metadata(tmp_path / "m.evl")["rows"] == 600
    with pytest.raises(ModelFileError):
        everlearn.load(tmp_path / "m.evl")


def test_a_small_file_is_small(tmp_path):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(600, 4)), columns=list("abcd"))
    IncrementalGaussianMixture(reservoir=0).partial_fit(rows).save(tmp_path / "m.evl", tags={"site": "north"})
    assert (tmp_path / "m.evl").stat().st_size < 8000


def test_it_goes_with_the_model_and_is_no_part_of_it(tmp_path):
    model = learned()
    model.save(tmp_path / "a.evl", tags={"site": "north"})
    loaded = everlearn.load(tmp_path / "a.evl")
    assert everlearn.read_metadata(tmp_path / "a.evl")["digest"] == parts(everlearn.dumps(model))[0]["digest"]
    loaded.copy().save(tmp_path / "b.evl", tags={"line": "2"})
    first, second = (everlearn.read_metadata(tmp_path / name) for name in ("a.evl", "b.evl"))
    assert second["tags"] == {"site": "north", "line": "2"}
    assert {name: first[name] for name in ("created", "last_row", "digest")} == {
        name: second[name] for name in ("created", "last_row", "digest")
    }
    # Bytes without the clock: equal models give equal bytes.
    assert everlearn.dumps(model) == everlearn.dumps(model.copy())


def test_a_merged_model_lists_what_was_merged(tmp_path):
    for i in range(3):
        learned(seed=i).save(tmp_path / f"{i}.evl", tags={"site": "north", "device": str(i)})
    models = [everlearn.load(tmp_path / f"{i}.evl") for i in range(3)]
    merged = everlearn.merge(models)
    merged.save(tmp_path / "all.evl")
    found = everlearn.read_metadata(tmp_path / "all.evl")
    assert found["tags"] == {"site": "north"}
    assert [(parent["name"], parent["rows"]) for parent in found["parents"]] == [(f"{i}.evl", 600) for i in range(3)]
    for parent in found["parents"]:
        assert everlearn.read_metadata(tmp_path / parent["name"])["digest"].startswith(parent["digest"])
    # Merged again, the file counts, and not what it was made of; before it is a file, its parts do.
    (everlearn.load(tmp_path / "all.evl") + models[0]).save(tmp_path / "more.evl")
    assert [p["name"] for p in everlearn.read_metadata(tmp_path / "more.evl")["parents"]] == ["0.evl", "all.evl"]
    assert merged.merge(models[0])._origin_.parents == merged._origin_.parents


def test_files_of_the_first_format_say_less():
    found = everlearn.read_metadata(FOLDER / "mixture_named.evl")
    assert found["kind"] == "IncrementalGaussianMixture"
    assert [column["name"] for column in found["columns"]] == ["temperature", "load", "speed"]
    assert (found["rows"], found["created"], found["parents"]) == (None, None, [])


def test_every_model_can_be_described(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 3))
    OnlinePPCA(1).partial_fit(X).save(tmp_path / "m.evl")
    assert everlearn.read_metadata(tmp_path / "m.evl")["columns"][0]["high"] == pytest.approx(3, abs=0.5)
    for path in FOLDER.glob("*.evl"):
        model = everlearn.load(path)
        model.save(tmp_path / "again.evl")
        rows = model.n_samples_seen_ if model._is_started() else None
        assert everlearn.read_metadata(tmp_path / "again.evl")["rows"] == rows


@pytest.mark.parametrize("tags", [{"a": 1}, ["a"], {"": "x"}, {"a": "x" * 1000}, {str(i): "" for i in range(200)}])
def test_tags_are_few_short_texts(tmp_path, tags):
    with pytest.raises(InputError, match="tags"):
        fitted().save(tmp_path / "m.evl", tags=tags)
    assert not list(tmp_path.iterdir())


HOSTILE = {
    "no object": [],
    "tags a list": {"tags": ["a"]},
    "tags of numbers": {"tags": {"a": 1}},
    "too many tags": {"tags": {str(i): "" for i in range(1000)}},
    "parents a text": {"parents": "all"},
    "a parent a number": {"parents": [3]},
    "a parent with a path too long": {"parents": [["x" * 10_000, "", 1]]},
    "a parent of less than no rows": {"parents": [["x", "", -1]]},
    "no time": {"created": "yesterday"},
    "a time beyond all": {"last_row": "99999-01-01"},
    "rows a text": {"rows": "600"},
    "no ranges": {"ranges": [[1.0]]},
}


@pytest.mark.parametrize("about", HOSTILE.values(), ids=HOSTILE)
def test_hostile_words(about, tmp_path):
    content, tensors = parts(everlearn.dumps(fitted()))
    content["about"] = about
    content["about_digest"] = metadata.checksum(about)
    (tmp_path / "m.evl").write_bytes(rebuilt(content, tensors))
    for read in (everlearn.load, everlearn.read_metadata):
        with pytest.raises(ModelFileError):
            read(tmp_path / "m.evl")


def test_damage_is_noticed(tmp_path):
    fitted().save(tmp_path / "m.evl", tags={"site": "north"})
    data = (tmp_path / "m.evl").read_bytes()
    (tmp_path / "m.evl").write_bytes(data.replace(b"north", b"south"))
    with pytest.raises(ModelFileError, match="damaged"):
        everlearn.load(tmp_path / "m.evl")
    (tmp_path / "m.evl").write_bytes(data[:100])
    with pytest.raises(ModelFileError, match="truncated"):
        everlearn.read_metadata(tmp_path / "m.evl")
