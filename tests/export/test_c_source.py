"""The C source, compiled: it answers as the model does, and learns as it does while its structure stays."""

import ctypes
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from code_blocks import blocks
from everlearn import IncrementalGaussianMixture, OnlinePPCA
from everlearn.errors import InputError
from everlearn.export import to_c
from everlearn.mixture.ask import log_density
from everlearn.mixture.keep.carry import with_room
from everlearn.mixture.kernels.rows import learn_rows
from everlearn.mixture.learn import work_of

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
EXACT = {"rtol": 1e-12, "atol": 1e-12}
DOUBLES = ctypes.POINTER(ctypes.c_double)


class Compiled:
    """A model in C: the functions of its file on a state of its own."""

    def __init__(self, source, folder, *options):
        (folder / "model.c").write_text(source)
        library = folder / "model.so"
        command = [COMPILER, "-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIC", "-shared"]
        subprocess.run([*command, *options, "-o", library, folder / "model.c", "-lm"], check=True)
        self.library = ctypes.CDLL(str(library))
        for name in ("log_density", "p_value", "learn"):
            if hasattr(self.library, f"everlearn_{name}"):
                getattr(self.library, f"everlearn_{name}").restype = ctypes.c_double
        self.state = ctypes.create_string_buffer(1 << 16)
        self.library.everlearn_init(self.state)

    def each(self, name, X, *rest):
        function = getattr(self.library, f"everlearn_{name}")
        return np.array([function(self.state, pointer(row), *rest) for row in X])

    def learn(self, X, weight=1.0):
        return self.each("learn", X, ctypes.c_double(weight))

    def arrays(self, name, X, *widths):
        function, out = getattr(self.library, f"everlearn_{name}"), [np.empty((len(X), n)) for n in widths]
        for t, row in enumerate(X):
            function(self.state, pointer(row), *(pointer(values[t]) for values in out))
        return out


def pointer(row):
    return row.ctypes.data_as(DOUBLES)


def stream(n, seed=0):
    """Three groups in three columns of unlike units; one value in ten is missing."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 3)) @ [[1.0, 0.7, 0.0], [0.0, 0.7, 0.4], [0.0, 0.0, 1.0]]
    X = (Z + 6.0 * rng.integers(3, size=(n, 1))) * [1.0, 1e3, 1e-2] + [0.0, 5e4, 3.0]
    X[rng.random(X.shape) < 0.1] = np.nan
    return np.ascontiguousarray(X)


ROWS, NEW = stream(1000), stream(300, seed=1)
COMPLETE = np.ascontiguousarray(NEW[~np.isnan(NEW).any(axis=1)])


@pytest.fixture(scope="module")
def model():
    return IncrementalGaussianMixture(3).fit(ROWS)


@pytest.fixture(scope="module")
def compiled(model, tmp_path_factory):
    return Compiled(to_c(model), tmp_path_factory.mktemp("c"))


def fixed_structure(model):
    """The model whose components are fixed in number, for the update of `mixture.learn`; and its settings."""
    look = model._look()
    components = with_room(look.model.components, int(look.model.components.size[0]))
    own = components._replace(**{name: getattr(components, name).copy() for name in ("size", "total", "rows")})
    return look.model._replace(components=own), look.frame, model._core_.answering(model._state_).settings


def learned_before(model, X, weight=1.0):
    """Log-densities of rows before each is learned, by our own update, and what answers after it."""
    own, frame, settings = fixed_structure(model)
    told = np.empty((2, len(X)))
    learn_rows(X, np.full(len(X), weight), work_of(own, frame, settings).handle, told)
    after = replace(model._look(), model=own, cache={}, scorer=None)
    return told[0], after


def test_rows_with_and_without_gaps_are_scored_alike(model, compiled):
    np.testing.assert_allclose(compiled.each("log_density", NEW), model.score_samples(NEW), **EXACT)
    np.testing.assert_allclose(
        compiled.arrays("responsibilities", NEW, 3)[0], model.predict_proba(NEW), rtol=1e-10, atol=1e-12
    )


def test_p_values_agree_in_the_law_and_far_in_its_tail(model, compiled):
    far = np.concatenate([COMPLETE, COMPLETE[:30] + 99.0 * np.nanstd(ROWS, axis=0)])
    expected = model.p_value(far)
    assert expected.min() < 1e-20
    assert expected.max() > 0.9
    np.testing.assert_allclose(compiled.each("p_value", far), expected, rtol=1e-10)
    assert np.isnan(compiled.each("p_value", np.array([[0.0, np.nan, 0.0]]))).all()


def test_gaps_are_filled_alike_with_their_spread(model, compiled):
    rows = np.concatenate([NEW, np.full((1, 3), np.nan)])
    filled, std = compiled.arrays("impute", rows, 3, 3)
    for ours, theirs in zip(model.impute(rows, return_std=True), (filled, std), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-11, atol=1e-12)


def test_it_learns_as_the_estimator_does_between_searches(model, tmp_path):
    c, learner = Compiled(to_c(model), tmp_path), model.copy()
    learner.score_samples(NEW[:1])  # from now on answers follow the rows, until these have grown by 5 %
    c.learn(NEW[:40])
    learner.partial_fit(NEW[:40])
    np.testing.assert_allclose(c.each("log_density", NEW), learner.score_samples(NEW), **EXACT)
    before = c.each("log_density", NEW)
    c.library.everlearn_refresh(c.state)
    np.testing.assert_allclose(c.each("log_density", NEW), before, **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [{}, {"covariance_type": "diag"}, {"forgetting": 0.98}, {"reservoir": 0}],
    ids=["full", "diagonal", "forgetting", "no rows kept"],
)
def test_a_long_stream_is_learned_by_the_same_update(parameters, tmp_path):
    model = IncrementalGaussianMixture(3, **parameters).fit(ROWS[:400])
    X = stream(1500, seed=2)
    X[::97] = X[::97] + 40.0 * np.nanstd(ROWS, axis=0)  # far from all components
    c = Compiled(to_c(model), tmp_path)
    np.testing.assert_allclose(c.each("log_density", NEW), model.score_samples(NEW), **EXACT)
    expected, after = learned_before(model, X, weight=1.5)
    found = c.learn(X, weight=1.5)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(c.each("log_density", NEW), log_density(after, NEW), rtol=1e-10, atol=1e-10)
    assert np.abs(log_density(after, NEW) - model.score_samples(NEW)).max() > 0.1  # it has learned


def test_a_mixture_of_scikit_learn_goes_to_c_by_way_of_ours(tmp_path):
    known = GaussianMixture(2, random_state=0).fit(COMPLETE)
    c = Compiled(to_c(IncrementalGaussianMixture.from_sklearn(known, n_samples=300)), tmp_path)
    np.testing.assert_allclose(c.each("log_density", COMPLETE), known.score_samples(COMPLETE), rtol=1e-9)


def test_what_cannot_be_learned_changes_nothing(compiled, tmp_path, model):
    c = Compiled(to_c(model), tmp_path, "-DEVERLEARN_NO_P_VALUE")
    before = c.state.raw
    bad = np.array([[np.nan] * 3, [np.inf, 1.0, 1.0]])
    assert np.isnan(c.learn(bad)).all()
    assert np.isnan(c.learn(COMPLETE[:1], weight=0.0)).all()
    assert c.state.raw == before
    assert not hasattr(c.library, "everlearn_p_value")


def test_declarations_can_be_included_by_another_file(model, tmp_path):
    (tmp_path / "model.c").write_text(to_c(model))
    (tmp_path / "main.c").write_text(
        '#define EVERLEARN_DECLARATIONS\n#include "model.c"\n#include <stdio.h>\n'
        "int main(void) { static everlearn_mixture m; double x[EL_D] = {6.0, 56000.0, 3.06};\n"
        '  everlearn_init(&m); printf("%.17g", everlearn_log_density(&m, x)); return 0; }\n'
    )
    files = ["main.c", "model.c", "-o", "main", "-lm"]
    subprocess.run([COMPILER, "-std=c99", "-Wall", "-Werror", *files], check=True, cwd=tmp_path)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert float(printed) == pytest.approx(model.score_samples([[6.0, 56000.0, 3.06]])[0], rel=1e-12)


def test_the_lines_of_the_documentation_compile(model, repository, tmp_path):
    (tmp_path / "machine.c").write_text(to_c(model))
    (block,) = blocks(repository / "docs" / "howto" / "export.md", "c")
    (tmp_path / "main.c").write_text(block.text)
    subprocess.run([COMPILER, "-std=c99", "-Wall", "-Werror", "-c", "main.c"], check=True, cwd=tmp_path)


def test_names_of_columns_cannot_end_the_comment(tmp_path):
    import pandas as pd

    table = pd.DataFrame(ROWS[:300], columns=["*/ int main", "temp [°C]", "line\nbreak"])
    source = to_c(IncrementalGaussianMixture(2).fit(table))
    Compiled(source, tmp_path)
    assert "* / int main" in source


def test_other_models_are_refused_by_name():
    with pytest.raises(InputError, match="OnlinePPCA cannot be exported to C"):
        to_c(OnlinePPCA(1))
