"""Models whose files are kept in `golden/`, and the script that writes them.

Run `python tests/golden_models.py` to add files that are not there; `--all` writes every file again, which
is right only before a release: files of a released version must load for good.
"""

import json
import sys
from pathlib import Path

import numpy as np

import everlearn
from everlearn import FIGMN

FOLDER = Path(__file__).parent / "persistence" / "golden"
N_ROWS, N_ASKED = 120, 5


def rows(n=N_ROWS + N_ASKED):
    """Two groups in three columns, the same on every machine."""
    i = np.arange(n)
    X = np.column_stack([np.sin(i), np.cos(1.7 * i), np.sin(0.31 * i) ** 2])
    X[i % 2 == 1] += 4.0
    return X


def gaps(X):
    """The same rows with every seventh value missing."""
    X = X.copy()
    X.flat[::7] = np.nan
    return X


def named():
    import pandas as pd

    return pd.DataFrame(rows(), columns=["temperature", "load", "speed"])


def models():
    """Fitted models by the name of their file."""
    X, asked = rows()[:N_ROWS], rows()[N_ROWS:]
    labels, values = np.array(["low", "high"])[np.arange(N_ROWS) % 2], X[:, 0] * 2.0
    mixture = everlearn.IncrementalGaussianMixture
    yield "mixture", mixture(max_components=8).partial_fit(X)
    yield "mixture_warming_up", mixture().partial_fit(X[:20])
    yield "mixture_gaps", mixture(max_components=8).fit(gaps(X))
    yield "mixture_named", mixture(max_components=8).fit(named()[:N_ROWS])
    yield "mixture_unfitted", mixture(max_components=8)
    yield "low_rank", mixture(covariance_type="low_rank", rank=1, reservoir=100).partial_fit(X)
    yield "low_rank_warming_up", mixture(covariance_type="low_rank", rank=1).partial_fit(X[:20])
    yield "figmn", FIGMN().fit(X)
    yield "online_ppca", everlearn.OnlinePPCA(2).partial_fit(X)
    yield "online_ppca_warming_up", everlearn.OnlinePPCA(2).partial_fit(X[:20])
    constraint = everlearn.NaturalConstraint(reference="class")
    yield "online_ppca_constraint", everlearn.OnlinePPCA(2, constraint=constraint).fit(X, labels)
    yield "variational_ppca", everlearn.VariationalPPCA(1).partial_fit(X)
    yield "variational_ppca_paper", everlearn.VariationalPPCA.paper(1, random_state=0).fit(X)
    yield "classifier", everlearn.IncrementalGaussianMixtureClassifier().fit(X, labels)
    yield "figmn_classifier", everlearn.FIGMNClassifier().fit(X, labels)
    yield "regressor", everlearn.IncrementalGaussianMixtureRegressor().fit(X[:, 1:], values)
    yield "imputer", everlearn.StreamImputer(mixture(max_components=8)).fit(gaps(X))
    assert len(asked) == N_ASKED


def answers(model):
    """What a model says about rows that it has not seen, as plain numbers."""
    if not model._is_started():
        return {"parameters": sorted(model.get_params(deep=False))}
    asked = rows()[N_ROWS:]
    asked = gaps(asked) if hasattr(model, "model_") else asked
    asked = asked[:, 1:] if model.n_features_in_ == 2 else asked
    learned = getattr(model, "model_", model).n_samples_seen_
    found = {"rows": int(learned), "columns": list(map(str, getattr(model, "feature_names_in_", [])))}
    if hasattr(model, "feature_names_in_"):
        asked = named()[N_ROWS:]
    for method in ("score_samples", "predict", "predict_proba", "transform"):
        if hasattr(model, method):
            found[method] = np.asarray(getattr(model, method)(asked)).tolist()
    return found if hasattr(model, "classes_") else without_numbering(found)


def without_numbering(found):
    """Answers that do not depend on which component is called the first: two of them may have equally many rows."""
    if "predict_proba" in found:
        order = np.lexsort(np.round(found["predict_proba"], 6))
        for method in {"predict_proba", "transform"} & found.keys():
            found[method] = np.asarray(found[method])[:, order].tolist()
        found["predict"] = np.argsort(order)[found["predict"]].tolist()
    return found


def write(*, everything):
    """Write the files that are not there, or all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, model in models():
        path = FOLDER / f"{name}.evl"
        if everything or not path.exists():
            everlearn.save(model, path)
            (FOLDER / f"{name}.json").write_text(json.dumps(answers(model), indent=1) + "\n")


if __name__ == "__main__":
    write(everything="--all" in sys.argv)
