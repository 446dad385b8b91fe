"""A mixture as one C99 file: `mixture.c`, which is the same for all models, after the numbers of one model."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from everlearn.errors import InputError
from everlearn.export.density_law import density_law, require_mixture
from everlearn.gaussian.gaussian import LOG_2PI
from everlearn.mixture.ask import BACKGROUND_SPREAD, Look
from everlearn.mixture.shrinkage import shrinkage
from everlearn.mixture.state import Settings
from everlearn.typing import Array
from everlearn.version import __version__

# Stacks of small machines: matrices of more columns would not fit beside each other.
MAX_COLUMNS = 256
_NUMBERS_A_LINE = 6


def to_c(model: Any) -> str:
    """Return a self-contained C99 source file of a mixture, for scoring and for learning row by row.

    The file needs a C compiler and the mathematics library, and allocates nothing. Its functions answer as
    `score_samples`, `predict_proba`, `p_value` and `impute` do, and learn a row by the update of `partial_fit` with the
    number of components fixed: no component is opened and no search for a better structure is made. It holds no row of
    the stream, but the mean of a component that a single row opened is that row.

    Parameters
    ----------
    model : IncrementalGaussianMixture
        A fitted mixture; it does not change.

    Returns
    -------
    str
        The source. Its first comment says how it is compiled and called.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn import IncrementalGaussianMixture
    >>> from everlearn.export import to_c
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> source = to_c(IncrementalGaussianMixture().fit(X))
    >>> print(*[line for line in source.splitlines() if line.startswith("#define EL_D ")])
    #define EL_D 2
    """
    require_mixture(model, "C")
    if model.n_features_in_ > MAX_COLUMNS:
        raise InputError(
            f"The model has {model.n_features_in_} columns; a C file is made for at most {MAX_COLUMNS}, since its "
            "matrices lie on the stack."
        )
    look = model._look()
    settings = model._core_.answering(model._state_).settings
    numbers = _sizes(look, settings) | _components(look) | _shared(look, settings) | _broad(look) | _law(look)
    body = files("everlearn.export").joinpath("mixture.c").read_text(encoding="utf-8")
    lines = [_comment(model, look), *(_definition(name, value) for name, value in numbers.items())]
    return "\n".join(lines) + "\n\n" + body


def _sizes(look: Look, settings: Settings) -> dict[str, Any]:
    components, shape, fading = look.model.components, look.model.shape, settings.fading
    return {
        "D": len(look.frame.centre),
        "K": int(components.size[0]),
        "KNOWN": int(look.model.known),
        "DIAGONAL": int(shape.diagonal),
        "TAU": float(shape.tau),
        "SHRINKAGE": shrinkage(look),
        "GROWTH": float(settings.growth),
        "FADE_EVERY": int(fading.every) if fading.rate > 0.0 else 0,
        "FADE_FACTOR": float(fading.factor),
        "TOTAL": float(components.total[0]),
        "ROWS": int(components.rows[0]),
    }


def _components(look: Look) -> dict[str, Array]:
    c = look.model.components
    K = int(c.size[0])
    names = ("mass", "counts", "fresh", "heights", "means", "shift", "scatter", "factors")
    return {name.upper(): getattr(c, name)[:K] for name in names}


def _shared(look: Look, settings: Settings) -> dict[str, Array]:
    """What stays as it is while rows are learned."""
    shape, frame, everything = look.model.shape, look.frame, look.model.world.background
    return {
        "CENTRE": frame.centre,
        "INVERSE": frame.inverse,
        "LOG_SCALE": frame.log_scale,
        "COMMON_SHAPE": shape.matrix,
        "RIDGE": shape.ridge,
        "THRESHOLDS": settings.thresholds,
        "ALL_MEAN": everything.centre,
        "ALL_FACTOR": everything.factor,
        "ALL_HEIGHT": np.array(everything.height),
    }


def _broad(look: Look) -> dict[str, Any]:
    """The broad Gaussian behind the components, as answers take it: without correlations if they have none."""
    world, shape = look.model.world, look.model.shape
    covariance = BACKGROUND_SPREAD * (world.covariance + np.diag(shape.ridge))
    covariance = covariance * np.eye(len(covariance)) if shape.diagonal else covariance
    factor, log_det = world.background.factor / np.sqrt(BACKGROUND_SPREAD), None
    if shape.diagonal:
        factor = np.diag(1.0 / np.sqrt(np.diag(covariance)))
        log_det = float(np.log(np.diag(covariance)).sum())
    D = len(covariance)
    # ln|4 C| = ln|C| + D ln 4.
    height = world.background.height - 0.5 * D * np.log(BACKGROUND_SPREAD)
    height = height if log_det is None else -0.5 * (D * LOG_2PI + log_det)
    rows = max(float(world.background.rows), 1e-300)  # C has no logarithm of nothing
    return {
        "BROAD_MEAN": world.background.centre,
        "BROAD_COVARIANCE": covariance,
        "BROAD_FACTOR": factor,
        "BROAD_ROWS": rows,
        "BROAD_HEIGHT": np.array(np.log(rows) + height),
    }


def _law(look: Look) -> dict[str, Any]:
    law = density_law(look, np.arange(len(look.frame.centre)))
    return {
        "LAW_ROWS": len(law.log_density),
        "LAW_TAIL": law.tail,
        "LAW_PARTS": len(law.weights),
        "LAW_START": law.start,
        "LAW_WEIGHTS": law.weights,
        "LAW_HEIGHTS": law.heights,
        "LAW_LOG_DENSITY": law.log_density,
        "LAW_BELOW": law.below,
    }


def _definition(name: str, value: ArrayLike | float) -> str:
    """A macro for a number, a constant array for an array; digits enough to read the same double."""
    values = np.asarray(value)
    if values.ndim == 0:
        return f"#define EL_{name} {value if isinstance(value, int) else repr(float(values))}"
    sizes = "".join(f"[{n}]" for n in values.shape)
    # The table of p-values is the largest part: small machines leave it out.
    optional = " && !defined EVERLEARN_NO_P_VALUE" if name.startswith("LAW") else ""
    condition = f"!defined EVERLEARN_DECLARATIONS{optional}"
    return f"#if {condition}\nstatic const double EL_{name}{sizes} = {_nested(values.astype(np.float64))};\n#endif"


def _nested(values: Array) -> str:
    if values.ndim > 1:
        return "{" + ",\n".join(map(_nested, values)) + "}"
    # The shortest digits that read back as the same double.
    numbers = [repr(float(v)) for v in values]
    lines = [", ".join(numbers[i : i + _NUMBERS_A_LINE]) for i in range(0, len(numbers), _NUMBERS_A_LINE)]
    return "{" + ",\n".join(lines) + "}"


def _comment(model: Any, look: Look) -> str:
    names = getattr(model, "feature_names_in_", None)
    D = len(look.frame.centre)
    shown = [f"{i}: {_plain(names[i]) if names is not None else 'no name'}" for i in range(D)]
    listed = "\n".join(f"     {line}" for line in shown)
    return f"""/* A Gaussian mixture that goes on learning, exported by everlearn {__version__}.

   {model.n_samples_seen_} rows were learned. The columns are
{listed}

   Compile it:      cc -std=c99 -O2 -c THIS_FILE.c        (and link with -lm)
   Use it:          #define EVERLEARN_DECLARATIONS
                    #include "THIS_FILE.c"
                    static everlearn_mixture model;
                    everlearn_init(&model);
                    double before = everlearn_learn(&model, row, 1.0);
                    double now = everlearn_log_density(&model, row);

   NAN means "not observed". EVERLEARN_NO_P_VALUE leaves out the table that p-values need. A model is learned by one
   thread; several may ask it while none learns. */"""


def _plain(name: Any) -> str:
    """A column's name as it may stand in a comment."""
    # A name with */ in it would end the comment, and the rest of it would be compiled.
    return str(name).encode("ascii", "replace").decode().replace("*/", "* /").replace("\n", " ")
