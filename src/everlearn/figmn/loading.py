"""The check of a mixture that came from a file."""

from __future__ import annotations

from typing import Any

from everlearn.base.scaling import Frame
from everlearn.figmn.adaptive import AdaptiveState
from everlearn.figmn.learn import MixtureState
from everlearn.figmn.serving import Pair
from everlearn.forgetting import bank as forgetting
from everlearn.monitoring import event_log as monitor
from everlearn.persistence import schema
from everlearn.persistence.schema import expect, expect_fields, require

# The estimator imports this module, so that its class cannot be named here: it would close an import circle.
Model = Any


def check_mixture(model: Model) -> None:
    """Refuse a loaded mixture in which an array has another shape or a count another range than learning needs."""
    D = model.n_features_in_
    _check_pair(model._pair_, model.covariance, D)
    _check_monitor(model._monitor_)
    require((model._frame_ is None) != (model._warmup_ is None), "it has neither a scale nor rows to estimate it from")
    if model._frame_ is not None:
        check_frame(model._frame_, D)
    if model._warmup_ is not None:
        _check_warmup(model._warmup_, D)
    if model.second_look:
        expect(model._sample_, "gaps S D", {"D": D}, "the sample")
        expect(model._sampled_, int, {}, "the size of the sample")
        require(len(model._sample_) > 0, "the sample has no room")
    require(model._bank_ is None or model.forgetting == "adaptive", "it has memories that it was not to have")
    if model._bank_ is not None:
        _check_bank(model._bank_, model.covariance, D)


def _check_pair(pair: Any, covariance: str, D: int) -> None:
    require(type(pair) is Pair and type(pair.next_copy) is int, "it has no mixture that learns")
    require(type(pair.primed) is bool, "it does not know what its components hold")
    check_state(pair.learning, covariance, D)
    if pair.answering is not None:
        check_state(pair.answering, covariance, D)
        require(pair.answering.n_components > 0, "the mixture that answers is empty")


def check_frame(frame: Any, D: int) -> None:
    """Refuse a loaded frame that does not have a positive spread for each of D columns."""
    expect_fields(frame, Frame, {"D": D}, scale="D", variance="D", centre="D")
    require((frame.scale > 0).all() and (frame.variance > 0).all(), "a column's spread is not positive")


def check_state(state: Any, covariance: str, D: int) -> None:
    """Refuse a loaded state whose arrays do not fit each other, D columns or the shape of the covariances."""
    precisions = "C D" if covariance == "diag" else "C D D"
    expect_fields(
        state, MixtureState, {"D": D},
        means="C D", precisions=precisions, log_dets="C", counts="C", ages="C",
        n_components=int, n_rows=int, compacted_at=int,
    )  # fmt: skip
    K = state.n_components
    require(K <= len(state.counts), "it has more components than its arrays")
    diagonal = state.precisions[:K] if covariance == "diag" else state.precisions[:K].diagonal(axis1=1, axis2=2)
    require((state.counts[:K] > 0).all() and (diagonal > 0).all(), "a component has no count or no precision")
    require((state.ages >= 0).all(), "a component has a negative age")


def _check_warmup(warmup: Any, D: int) -> None:
    from everlearn.figmn.state import Warmup

    expect_fields(warmup, Warmup, {"D": D}, rows="gaps W D", weights="W", n=int)
    require(0 < warmup.n < len(warmup.rows), "it counts more first rows than it has")
    require((warmup.weights[: warmup.n] > 0).all(), "a first row has no weight")


def _check_monitor(state: Any) -> None:
    expect_fields(
        state, monitor.MonitorState, {},
        totals="2", memory="7", rows="int64 E", kinds="int64 E", values="any E", n_events=int,
    )  # fmt: skip
    known = (state.kinds >= 0) & (state.kinds < len(monitor.KINDS))
    require(len(state.rows) > 0 and known.all(), "it has events of an unknown kind")


def _check_bank(state: Any, covariance: str, D: int) -> None:
    require(type(state) is AdaptiveState, "its memories are something else")
    sizes = schema.check_state(state.bank, forgetting.BankState)
    require(forgetting.is_consistent(state.bank), "its bank of horizons has counts out of range")
    J, active = sizes["J"], int(state.bank.active[0])
    members = (state.active, state.stash)
    require(all(type(slot) is list and len(slot) in (0, J) for slot in members), "it has too few memories")
    needed = (0, 1) if state.bank.trial_rows[0] else (active,)
    require(all(len(members[slot]) == J for slot in needed), "it lacks the memories that it answers from")
    for member in (*state.active, *state.stash):
        check_state(member, covariance, D)
