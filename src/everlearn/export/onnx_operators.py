"""ONNX graphs in double precision: nodes, constants, and the few functions that operators do not give."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial import Polynomial, chebyshev
from numpy.typing import ArrayLike
from scipy.special import erfcx, gammaln

from everlearn.errors import require
from everlearn.version import __version__

# Operators with the signatures of this set are in every runtime since 2023.
OPSET, IR_VERSION = 18, 8
# Degree of the polynomial for the complementary error function: its relative error is below 1e-9.
_ERFC_DEGREE = 22


class Graph:
    """Nodes in the order in which they are computed. A value is known by its name."""

    def __init__(self) -> None:
        self.onnx: Any = require("onnx", "onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: list[Any] = []

    def constant(self, values: ArrayLike, dtype: type = np.float64) -> str:
        """A tensor of the model."""
        name = f"c{len(self.constants)}"
        array: Any = np.ascontiguousarray(np.asarray(values, dtype=dtype))
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def apply(self, operator: str, *inputs: str | ArrayLike, **attributes: Any) -> str:
        """Name of the result of an operator; inputs that are no names are constants."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        result = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, names, [result], **attributes))
        return result

    def reduce(self, operator: str, value: str, axis: int, *, keep: bool = False) -> str:
        """Reduction over one axis."""
        return self.apply(operator, value, self.constant([axis], np.int64), keepdims=int(keep))

    def insert_axis(self, value: str, axis: int) -> str:
        """The value with one more axis, of length one."""
        return self.apply("Unsqueeze", value, self.constant([axis], np.int64))

    def columns(self, value: str, index: ArrayLike) -> str:
        """Some columns of a matrix."""
        return self.apply("Gather", value, self.constant(index, np.int64), axis=1)

    def log_sum_exp(self, value: str) -> str:
        """log sum exp over the last axis of a matrix, (n,)."""
        top = self.reduce("ReduceMax", value, 1, keep=True)
        total = self.reduce("ReduceSum", self.apply("Exp", self.apply("Sub", value, top)), 1, keep=True)
        summed = self.apply("Add", top, self.apply("Log", total))
        return self.apply("Squeeze", summed, self.constant([1], np.int64))

    def chi_square_tail(self, h: str, degrees: int) -> str:
        """P(chi2 >= 2 h) of a matrix h >= 0 for a whole number of degrees of freedom, as a finite sum."""
        powers = np.arange(0.5 * (degrees % 2), 0.5 * degrees)
        minus_h = self.apply("Neg", h)
        if degrees == 1:
            return self._erfc_of_root(h, minus_h)
        # Terms in logs: powers and factorials overflow where their ratio is small. At h = 0 only the power 0 is left.
        logs = self.insert_axis(self.apply("Log", self.apply("Max", h, 1e-300)), 2)
        exponent = self.apply("Add", self.apply("Mul", logs, powers), self.insert_axis(minus_h, 2))
        terms = self.apply("Exp", self.apply("Sub", exponent, gammaln(powers + 1.0)))
        total = self.reduce("ReduceSum", terms, 2)
        if degrees % 2:
            total = self.apply("Add", total, self._erfc_of_root(h, minus_h))
        return self.apply("Min", total, 1.0)

    def _erfc_of_root(self, h: str, minus_h: str) -> str:
        """erfc(sqrt(h)) = t exp(P(t) - h) with t = 2 / (2 + sqrt(h)); runtimes have no erf for doubles."""
        t = self.apply("Div", 2.0, self.apply("Add", self.apply("Sqrt", h), 2.0))
        u = self.apply("Sub", self.apply("Mul", t, 2.0), 1.0)
        coefficients = _erfc_polynomial().coef[::-1]
        value = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.apply("Add", self.apply("Mul", value, u), coefficient)
        return self.apply("Mul", t, self.apply("Exp", self.apply("Add", value, minus_h)))

    def output(self, name: str, value: str, *shape: int | str) -> None:
        """Make a value an output of the model."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        kind = self.onnx.TensorProto.DOUBLE
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["n", *shape]))

    def finish(self, n_columns: int, description: str, facts: dict[str, str]) -> Any:
        """The model: input `X` with rows of doubles, and the outputs."""
        helper = self.onnx.helper
        X = helper.make_tensor_value_info("X", self.onnx.TensorProto.DOUBLE, ["n", n_columns])
        graph = helper.make_graph(self.nodes, "everlearn", [X], self.outputs, self.constants)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="everlearn", producer_version=__version__
        )
        model.doc_string = description
        helper.set_model_props(model, facts)
        self.onnx.checker.check_model(model, full_check=True)
        return model


def _erfc_polynomial() -> Polynomial:
    """P with erfcx(x) = t exp(P(u)), t = 2 / (2 + x), u = 2 t - 1: interpolation at Chebyshev points."""

    def logarithm(u: Any) -> Any:
        t = 0.5 * (u + 1.0)
        return np.log(erfcx(2.0 / t - 2.0) / t)

    return Polynomial(chebyshev.cheb2poly(chebyshev.chebinterpolate(logarithm, _ERFC_DEGREE)))
