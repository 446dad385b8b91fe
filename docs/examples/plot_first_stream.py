"""
A machine, row by row
=====================

A sensor stream with two regimes and missing values is learned as it comes. Each row is scored before it is learned,
so the score says how strange the row was at that moment.
"""

# %%
# The stream: temperature and pressure of a machine that works and idles by turns, with one value in twenty missing.
# Pressure follows temperature. From row 2000 on a valve leaks for a hundred rows.

import numpy as np
import plotly.graph_objects as go

from everlearn import IncrementalGaussianMixture

rng = np.random.default_rng(7)
working = np.sin(np.arange(3000) / 150) > 0
temperature = np.where(working, 60, 30) + rng.normal(0, 8, 3000)
pressure = 1 + 0.05 * temperature + rng.normal(0, 0.05, 3000)
pressure[2000:2100] -= 0.6
stream = np.column_stack([temperature, pressure])
stream[rng.random(stream.shape) < 0.05] = np.nan

# %%
# Score, then learn. The first rows show the model both regimes.

model = IncrementalGaussianMixture()
model.partial_fit(stream[:1000])
surprise = np.full(3000, np.nan)
for t in range(1000, 3000):
    row = stream[t : t + 1]
    surprise[t] = -model.score_samples(row)[0]
    model.partial_fit(row)

# %%
# The leak stands out at once, although neither the temperature nor the pressure is unusual by itself. As it goes on,
# the model learns it too, and the surprise fades.

figure = go.Figure(go.Scatter(y=surprise, mode="lines"))
figure.update_layout(xaxis_title="row", yaxis_title="negative log-density", title="How strange each row was")
figure

# %%
# What the model knows in the end:

print(f"{model.n_components_} components after {model.n_samples_seen_} rows")
