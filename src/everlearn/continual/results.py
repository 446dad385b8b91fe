"""What came out of a run over tasks: a table to read, matrices to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import everlearn.continual.metrics as metrics
from everlearn.errors import InputError, require
from everlearn.reporting.tables import Table
from everlearn.typing import Array


@dataclass(frozen=True)
class Results:
    """Scores of all tasks after each was learned; printing it shows a table.

    Parameters
    ----------
    names : tuple of str
        Names of the tasks.
    R : ndarray of shape (n_tasks, n_tasks)
        ``R[i, j]``, score on task j after training through task i.
    untrained : ndarray of shape (n_tasks,)
        Scores of the untrained model; NaN where not known.
    interference : ndarray of shape (n_tasks, n_tasks), optional
        Interference matrix.
    """

    names: tuple[str, ...]
    R: Array
    untrained: Array
    interference: Array | None = None

    def summary(self) -> dict[str, float]:
        """Return ACC, BWT, FWT, forgetting and the anytime mean, each in the default variant of its function.

        Returns
        -------
        dict
            Number by name.
        """
        return {
            "ACC": metrics.accuracy(self.R),
            "BWT": metrics.backward_transfer(self.R),
            "FWT": metrics.forward_transfer(self.R, self.untrained),
            "forgetting": metrics.forgetting(self.R),
            "anytime": metrics.anytime(self.R),
        }

    def table(self) -> str:
        """Return R and the summary as text.

        Returns
        -------
        str
            Lines of text.
        """
        rows: list[list[str | float]] = [[name, *map(float, row)] for name, row in zip(self.names, self.R, strict=True)]
        numbers = self.summary()
        tables = Table(["after", *self.names], rows), Table(list(numbers), [list(numbers.values())])
        return "\n\n".join(table.text() for table in tables)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return self.table()

    def plot(self) -> Any:
        """Draw R as a heat map; needs the extra `plot`.

        Returns
        -------
        plotly.graph_objects.Figure
            The figure.
        """
        return self._heat_map(self.R, "score after each task", "tested on", "after learning", diverging=False)

    def plot_interference(self) -> Any:
        """Draw the interference matrix as a heat map, red where learning another task first was harmful.

        Returns
        -------
        plotly.graph_objects.Figure
            The figure.
        """
        # One more model for each pair of tasks, hence only where asked for.
        if self.interference is None:
            raise InputError(
                "These results have no interference matrix. Make them with run(..., with_interference=True)."
            )
        return self._heat_map(self.interference, "interference", "then, and tested on", "learned first", diverging=True)

    def _heat_map(self, values: Array, title: str, across: str, down: str, *, diverging: bool) -> Any:
        graphs = require("plotly.graph_objects", extra="plot")
        # Interference has a sign: a scale with its middle at zero shows where it changes.
        colours = {"colorscale": "RdBu", "zmid": 0.0} if diverging else {"colorscale": "Viridis"}
        names, numbers = list(self.names), np.round(values, 3)
        picture = graphs.Heatmap(z=values, x=names, y=names, text=numbers, texttemplate="%{text}", **colours)
        figure = graphs.Figure(picture)
        figure.update_layout(title=title, xaxis={"title": across, "type": "category"})
        figure.update_yaxes(title=down, type="category", autorange="reversed")
        return figure
