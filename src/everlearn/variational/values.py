"""What VariationalPPCA shows of its state beside the face of every PPCA, and how it is merged and loaded."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from everlearn.errors import MergeError
from everlearn.forgetting.bank import BankState
from everlearn.forgetting.kernels.bank import ACTIVE, CONTROL_SIZE, TRIAL, TRIAL_ROWS
from everlearn.persistence.schema import Sizes, expect, expect_fields, require
from everlearn.ppca.base import PPCABase
from everlearn.variational import learn as variational
from everlearn.variational.learn import PaperState, Posterior, State

Array = NDArray[np.float64]


class Trace(NamedTuple):
    """Row numbers, and after each of them the forgetting factor and the memory in use."""

    rows: NDArray[np.int64]
    forgetting: Array
    memory: Array


class VariationalValues(PPCABase):
    """Fitted attributes, merging and loading of variational models."""

    n_components: int
    forgetting: Any
    noise_variance: Any
    prior_precision: float
    mode: str
    trace: int
    _state_: State | PaperState | None
    _buffer_: Array
    _buffered_: int
    _scale_: float
    _first_noise_: float
    _last_: float
    _n_rows_: int
    _trace_: Array

    def _posterior(self) -> Posterior:
        raise NotImplementedError

    def _of_rows(self, rows: Array) -> tuple[Posterior, float]:
        raise NotImplementedError

    def _set_state(self, posterior: Posterior, scale: float, *, stream_row: int) -> None:
        raise NotImplementedError

    def _check_compound_parameters(self, n: int) -> None:
        raise NotImplementedError

    def _warmup_rows(self) -> int:
        raise NotImplementedError

    def _changes(self) -> NDArray[np.int64]:
        raise NotImplementedError

    def _cap(self) -> float:
        raise NotImplementedError

    # -- fitted attributes ------------------------------------------------------------------------

    @property
    def loadings_std_(self) -> Array:
        """Posterior standard deviations of `loadings_`."""
        answer = self._fitted()
        known = self._posterior()
        rotation = np.linalg.svd(known.M, full_matrices=False)[2].T
        return variational.loadings_std(known, rotation) * answer.scale

    @property
    def forgetting_(self) -> float:
        """The last forgetting factor."""
        self._check_started()
        return self._last_

    @property
    def memory_(self) -> float | None:
        """Rows that the model which answers may remember; None when it forgets nothing."""
        self._check_started()
        cap = self._cap()
        return cap if math.isfinite(cap) else None

    @property
    def effective_samples_(self) -> float:
        """Rows that the model which answers remembers."""
        self._check_started()
        return float(self._posterior().N) if self._state_ is not None or self._buffered_ else 0.0

    @property
    def changes_(self) -> NDArray[np.int64]:
        """Rows with which an accepted change began."""
        self._check_started()
        return self._changes()

    @property
    def trace_(self) -> Trace:
        """Forgetting factor and memory after each of the last rows."""
        self._check_started()
        if not self.trace:
            raise AttributeError("trace_ is kept with trace=N, for the last N rows; this model has trace=0.")
        forgetting, memory = self._trace_.copy()
        return Trace(np.arange(self._n_rows_ - len(memory), self._n_rows_), forgetting, memory)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows learned."""
        self._check_started()
        return self._n_rows_

    # -- merging ----------------------------------------------------------------------------------

    def _merge(self, others: list[Self], *, method: str, weights: ArrayLike | None, n_components: int | None) -> Self:
        if method not in ("auto", "bayes"):
            raise MergeError(
                f"method={method!r} does not apply to VariationalPPCA, whose posteriors multiply: 'bayes'."
            )
        if n_components not in (None, self.n_components):
            raise MergeError(f"n_components={n_components!r}: a merge keeps the {self.n_components} latent axes.")
        models = [self, *others]
        shares = np.ones(len(models)) if weights is None else np.asarray(weights) * len(models) / np.sum(weights)
        pairs = sorted(zip(models, shares, strict=True), key=lambda pair: pair[0]._content())
        grown = [(model, share) for model, share in pairs if model._state_ is not None]
        waiting = [model._buffer_[: model._buffered_] for model, _ in pairs if model._state_ is None]
        merged: Self = (grown[0][0] if grown else self).copy()
        rows = np.concatenate([*waiting, np.empty((0, self.n_features_in_))])
        if len(grown) > 1:
            merged._become(grown)
        if not grown:
            merged._start(rows, whole=False)
        if len(rows):
            merged._learn(rows, None, None)
        merged._n_rows_ = sum(model._n_rows_ for model in models)
        merged._cache_ = {}
        return merged

    def _content(self) -> tuple[int, bytes]:
        """What models are ordered by before they are merged, so that their order makes no difference."""
        known = self._buffer_ if self._state_ is None else self._posterior().M
        return self._n_rows_, known.tobytes()

    def _become(self, grown: list[tuple[Self, float]]) -> None:
        """Take on the product of several posteriors, in the largest of their scales."""
        scale = max(model._scale_ for model, _ in grown)
        parts = [variational.rescale(model._posterior(), model._scale_ / scale) for model, _ in grown]
        K0 = variational.K0 if self.mode == "robust" else self.prior_precision * float(self.noise_variance)
        known = variational.merge(parts, np.array([share for _, share in grown]), K0)
        if self.mode == "robust":
            self._set_state(known, scale, stream_row=sum(model._n_rows_ for model, _ in grown))
            return
        B = np.ascontiguousarray(known.K @ known.M.T)
        self._state_, self._scale_ = PaperState(B, known.K, B @ B.T), scale
        self.__dict__.pop("_tools_", None)

    # -- loading ----------------------------------------------------------------------------------

    def _check_loaded(self) -> None:
        sizes: Sizes = {"n": self.n_features_in_, "m": self.n_components, "p": self.n_components + 1}
        self._check_compound_parameters(sizes["n"])
        waiting = 0 if self._state_ is not None else self._warmup_rows()
        expect(self._buffer_, f"gaps {waiting} n", sizes, "the first rows")
        expect(self._trace_, "any 2 t", sizes, "the trace")
        for count in (self._buffered_, self._n_rows_):
            expect(count, int, sizes, "a number of rows")
        for number in (self._scale_, self._first_noise_, self._last_):
            expect(number, float, sizes, "a number")
        require(self._scale_ > 0 and self._first_noise_ > 0, "its scale is not positive")
        require(self._buffered_ <= waiting and sizes["t"] <= self.trace, "it kept more rows than it may")
        if self._state_ is not None and self.mode == "paper":
            expect_fields(self._state_, PaperState, sizes, B="any m n", K="any m m", C="any m m")
        elif self._state_ is not None:
            _check_state(self._state_, sizes, adaptive=self.forgetting == "adaptive")
        self._cache_ = {}


def _check_state(state: Any, sizes: Sizes, *, adaptive: bool) -> None:
    """Refuse a loaded state whose arrays do not fit each other, or whose counts a kernel could not index with."""
    sizes.update({"s": 2, "J": len(variational.CAPS)} if adaptive else {"s": 1, "J": 1})
    sizes["r"] = variational.warmup_rows(sizes["m"]) if adaptive else 0
    expect_fields(
        state, State, sizes,
        B="s J p n", K="s J p p", C="s J p p", K_inv="s J p p", seen="s J n", noise="s J 2", origin="n", rounding="1",
        gappy="bool 1", learned="int64 1", young="int64 s", rows="gaps s r n", prior_B="s p n", prior_K="s p p",
        prior_noise="s 2",
    )  # fmt: skip
    expect_fields(
        state.bank, BankState, sizes,
        caps="any J", log_prior="any J", log_weights="any 2 J", n_eff="2 J",
        control=f"int64 {CONTROL_SIZE}", evidence="any 1", changes="int64 c",
    )  # fmt: skip
    control = state.bank.control
    require((control >= 0).all() and (control < 2**62).all() and control[TRIAL] <= TRIAL_ROWS, "its counts")
    require(control[ACTIVE] < sizes["s"] and (control[TRIAL] == 0 or adaptive), "its memories have no order")
    require((state.young >= -1).all() and (state.young < max(sizes["r"], 1)).all(), "its young rows")
    require(sizes["c"] > 0 and (state.noise > 0).all() and (state.bank.n_eff > 0).all(), "its memories have no size")
