"""
How much to forget
==================

Four sensors follow one hidden cause. For a while nothing changes; then the way they follow it turns overnight, later
it turns slowly, and all the while a reading goes wild now and then. A model that forgets nothing is ruined by the turn,
one that forgets at a fixed rate is never precise and never fast. :class:`everlearn.VariationalPPCA` finds out as it
goes how much of the past still holds.
"""

# %%
# The stream: 600 quiet rows, an abrupt turn, 600 quiet rows, a slow turn of 0.2 degrees a row for 400 rows, and 400
# rows of rest. One row in fifty is an outlier.

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from everlearn import VariationalPPCA

rng = np.random.default_rng(5)
n_rows = 2000
row = np.arange(n_rows)
turn = np.where(row < 600, 0.0, 75.0) + 0.2 * np.clip(row - 1200, 0, 400)
first, second = np.array([4.0, 2.0, -1.0, 0.0]), np.array([-1.0, 2.0, 0.0, 4.0])
truth = np.cos(np.radians(turn))[:, None] * first + np.sin(np.radians(turn))[:, None] * second
stream = 50 + rng.normal(size=(n_rows, 1)) * truth + rng.normal(size=(n_rows, 4))
wild = rng.random(n_rows) < 0.02
wild[:20] = False
stream[wild] = 50 + 30 * rng.normal(size=(wild.sum(), 4))

# %%
# Four models read it row by row: the default, two fixed forgetting factors (memories of 10 and 50 rows), and one that
# forgets nothing. `trace` keeps what the default decided at every row.

models = {
    "adaptive (default)": VariationalPPCA(1, trace=n_rows),
    "fixed 0.9": VariationalPPCA(1, forgetting=0.9),
    "fixed 0.98": VariationalPPCA(1, forgetting=0.98),
    "nothing forgotten": VariationalPPCA(1, forgetting=None),
}


def angle(model, axis):
    """Angle between the learned axis and the true one, in degrees."""
    cosine = abs(model.components_[0] @ axis) / np.linalg.norm(axis)
    return np.degrees(np.arccos(min(cosine, 1.0)))


errors = {name: np.empty(n_rows) for name in models}
for t in range(n_rows):
    for name, model in models.items():
        model.partial_fit(stream[t : t + 1])
        errors[name][t] = angle(model, truth[t])

# %%
# The error of each, averaged over twenty rows. Outliers throw the fixed memories off again and again; the turn at row
# 600 stays with the model that forgets nothing for good.

figure = go.Figure()
for name, error in errors.items():
    figure.add_scatter(x=row[19:], y=np.convolve(error, np.full(20, 1 / 20), "valid"), name=name, mode="lines")
figure.update_layout(
    xaxis_title="row",
    yaxis_title="degrees",
    yaxis_type="log",
    title="Angle to the true axis: turns at 600, 1200 to 1600",
)
figure

# %%
# What the default decided. In quiet times the longest memories answer; during the slow turn, short ones do, and
# afterwards longer ones start again from them. The forgetting factor is 1 while a memory fills and (N - 1)/N once it is
# full; at a row that puts a change on trial it is 0.

trace = models["adaptive (default)"].trace_
largest = 600.0
figure = make_subplots(rows=2, cols=1, shared_xaxes=True, subplot_titles=("memory in use (rows)", "forgetting factor"))
memory = np.minimum(trace.memory, largest)
figure.add_scatter(x=trace.rows, y=memory, mode="lines", line_shape="hv", name="memory (600: no limit)", row=1, col=1)
figure.add_scatter(x=trace.rows, y=trace.forgetting, mode="lines", name="λ", row=2, col=1)
figure.add_scatter(x=row[wild], y=np.zeros(wild.sum()), mode="markers", name="outliers", row=2, col=1)
figure.update_yaxes(type="log", row=1, col=1)
figure.update_layout(xaxis2_title="row")
figure

# %%
# An outlier looks like a change at first: the row is put on trial, a new bank of models against the old one. Within ten
# rows the evidence decides. Outliers are taken back; the turn is accepted, and `changes_` holds the row where it began,
# now and then with a second entry close by, when the first rows after the turn were too few to tell its direction.

default = models["adaptive (default)"]
on_trial = trace.rows[trace.forgetting == 0.0]
print(f"{len(on_trial)} rows were put on trial, {wild[on_trial].sum()} of them outliers")
print(f"accepted changes began at rows {default.changes_.tolist()}")

# %%
# What the model knows, and how well: the loadings of the hidden cause with their posterior standard deviations, and the
# noise, which the outliers have left alone.

for name, mean, std in zip("abcd", default.loadings_[:, 0], default.loadings_std_[:, 0], strict=True):
    print(f"sensor {name}: {mean:+.2f} ± {std:.2f}")
print(f"noise {np.sqrt(default.noise_variance_):.2f} (1.00 in truth), from {default.effective_samples_:.0f} rows")
