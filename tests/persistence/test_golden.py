"""Files of earlier versions load, answer what was recorded, and go on learning."""

import json

import numpy as np
import pytest

import everlearn
from everlearn.errors import ModelFileError
from everlearn.file_tags import TAGS
from golden_models import FOLDER, answers, models, rows
from model_files import parts

NAMES = sorted(path.stem for path in FOLDER.glob("*.evl"))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_an_earlier_version_answers_as_it_did(name):
    model = everlearn.load(FOLDER / f"{name}.evl")
    recorded, found = json.loads((FOLDER / f"{name}.json").read_text()), answers(model)
    # An answer that models have learned to give since is no promise of the file.
    assert recorded.keys() <= found.keys()
    for key, value in recorded.items():
        if isinstance(value, list) and value and not isinstance(value[0], str):
            # Other machines round otherwise; a file that is misread differs in the first digits.
            np.testing.assert_allclose(np.array(found[key]), np.array(value), rtol=1e-6, atol=1e-9, err_msg=key)
        else:
            assert found[key] == value, key


@pytest.mark.parametrize("name", [name for name in NAMES if "unfitted" not in name])
def test_it_goes_on_learning(name):
    model = everlearn.load(FOLDER / f"{name}.evl")
    learned = getattr(model, "model_", model)
    before, X = learned.n_samples_seen_, rows()[:40]
    X = X[:, 1:] if model.n_features_in_ == 2 else X
    if hasattr(model, "predict_interval"):
        model.partial_fit(X, X[:, 0])
    elif hasattr(model, "classes_"):
        model.partial_fit(X, np.array(["low", "high"])[np.arange(40) % 2])
    else:
        import pandas as pd

        named = getattr(model, "feature_names_in_", None)
        model.partial_fit(X if named is None else pd.DataFrame(X, columns=named))
    assert learned.n_samples_seen_ == before + 40


@pytest.mark.parametrize("name", NAMES)
def test_files_are_small(name):
    assert (FOLDER / f"{name}.evl").stat().st_size < 64_000


def test_every_estimator_has_a_file():
    """A public estimator without a golden file could lose its readers unnoticed."""
    kept = {parts((FOLDER / f"{name}.evl").read_bytes())[0]["model"]["class"] for name in NAMES}
    assert {parts(everlearn.dumps(model))[0]["model"]["class"] for _, model in models()} <= kept
    assert kept <= TAGS.keys()


def test_a_misread_file_would_be_noticed(tmp_path):
    data = bytearray((FOLDER / "online_ppca.evl").read_bytes())
    data[-3] ^= 0x40
    (tmp_path / "m.evl").write_bytes(data)
    with pytest.raises(ModelFileError):
        everlearn.load(tmp_path / "m.evl")
