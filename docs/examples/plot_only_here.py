"""
What none of the peers can do
=============================

Learn a density in one pass, with as many components as the stream needs and from rows with holes; answer any columns
from any others, with intervals; merge with a model learned elsewhere; and forget what no longer holds. Other libraries
have one or two of these: ``everlearn bench`` sets them side by side, and says where they are better. Here are all of
them, on one page.
"""

# %%
# Two pumps report speed, flow and pressure. Each has a slow and a fast way to run; one value in five is missing.

import numpy as np
import plotly.graph_objects as go

from everlearn import IncrementalGaussianMixture

rng = np.random.default_rng(0)


def pump(n, speeds, lift=2.0):
    speed = rng.choice(speeds, n) + rng.normal(0, 0.05, n)
    flow = 3 * speed + rng.normal(0, 0.1, n)
    pressure = lift + speed**2 + rng.normal(0, 0.1, n)
    return np.column_stack([speed, flow, pressure])


def with_gaps(rows):
    return np.where(rng.random(rows.shape) < 0.2, np.nan, rows)


# %%
# **Growth in one pass, with gaps.** The fast way comes late in the stream, row by row. Nothing was said about the
# number of components, nothing is filled in beforehand, and no row is seen twice.

stream = with_gaps(np.vstack([pump(1000, [0.5, 1.0]), pump(1000, [0.5, 1.0, 2.0])]))
here, known = IncrementalGaussianMixture(), []
for row in stream:
    here.partial_fit(row[None])
    known.append(here.n_components_ if here.n_samples_seen_ > 200 else 0)

figure = go.Figure(go.Scatter(y=known, line_shape="hv"))
figure.update_layout(xaxis_title="row", yaxis_title="components", title="A way to run that is new at row 1000")
figure

# %%
# **Merge.** The pump next door runs at a speed that this one has never seen. Its model travels, its rows do not;
# merged, the two go on learning as one.

there = IncrementalGaussianMixture().partial_fit(with_gaps(pump(2000, [1.0, 3.0])))
both = here + there
test = pump(500, [0.5, 1.0, 2.0, 3.0])
for name, model in {"here": here, "there": there, "both": both}.items():
    print(f"{name:6s} {model.n_samples_seen_:5d} rows, log-density of rows of either pump {model.score(test):8.2f}")

# %%
# **Any columns from any others, with intervals.** The same model answers each question; nothing was trained for it.
# Where groups are as narrow as here, the intervals are on the cautious side.

questions = {"pressure from speed": (0, 2), "speed from flow": (1, 0), "flow from pressure": (2, 1)}
for name, (given, target) in questions.items():
    answer, (low, high) = both.predict_columns(test[:, [given]], target=target, given=[given], interval=0.9)
    truth = test[:, [target]]
    error, inside = np.sqrt(np.mean((answer - truth) ** 2)), np.mean((low <= truth) & (truth <= high))
    print(f"{name:20s} error {error:.2f} of a spread of {truth.std():.2f}, {inside:.0%} inside their 90 % interval")

# %%
# **Forgetting.** The pumps are moved, and the pressure at every speed rises by one. A model that forgets nothing keeps
# both places in mind; one that finds out by itself how much to forget is soon at home.

moved = np.vstack([pump(1500, [0.5, 1.0, 2.0]), pump(1500, [0.5, 1.0, 2.0], lift=3.0)])
figure = go.Figure()
for name, forgetting in {"forgets nothing": None, "forgets as needed": "adaptive"}.items():
    score = IncrementalGaussianMixture(forgetting=forgetting).prequential(with_gaps(moved))
    figure.add_scatter(x=np.arange(100, 3000), y=np.convolve(score, np.full(101, 1 / 101), "valid"), name=name)
figure.update_layout(xaxis_title="row", yaxis_title="log-density of rows to come", title="Moved at row 1500")
figure
