"""
A fleet of sensors: learn apart, merge, ask
===========================================

Sixteen sensors each see a part of the world and keep a small model of it. Their models travel, each with a bounded
sample of its rows, instead of all rows.
Merged, they answer as one model that saw everything, and go on learning.
"""

# %%
# The world: power and temperature of pumps in three regimes. Sensors stand at different pumps, so each sees the regimes
# in its own proportions, and some have never seen the third.

import numpy as np
import plotly.graph_objects as go

import everlearn
from everlearn import IncrementalGaussianMixture

rng = np.random.default_rng(3)
power = np.array([2.0, 5.0, 9.0])
slope = np.array([4.0, 6.0, 3.0])


def rows_of(shares, n):
    regime = rng.choice(3, size=n, p=shares)
    load = power[regime] + rng.normal(0, 0.6, n)
    return np.column_stack([load, 15 + slope[regime] * load + rng.normal(0, 2, n)])


shares = rng.dirichlet([1.0, 1.0, 0.3], size=16)
shards = [rows_of(share, 600) for share in shares]
held_out = np.concatenate([rows_of(share, 100) for share in shares])

# %%
# Learn apart. Each model keeps a bounded sample of its rows, on which the merged one is searched for structure.

models = [IncrementalGaussianMixture().partial_fit(rows) for rows in shards]

# %%
# Merge. The models stay as they were; `a + b` does the same for two. All must have the same columns and parameters, and
# columns in the same units: anything else is refused.

fleet = everlearn.merge(models)
single = IncrementalGaussianMixture().partial_fit(np.concatenate(shards))
print(f"one sensor alone      {np.mean([m.score(held_out) for m in models]):8.3f} nats a row")
print(f"merged                {fleet.score(held_out):8.3f}")
print(f"one model, all rows   {single.score(held_out):8.3f}")
print(f"rows that the merged model knows: {fleet.n_samples_seen_}")

# %%
# The merged density beside the held-out rows.

x, y = np.linspace(0, 12, 120), np.linspace(10, 60, 120)
grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
density = fleet.score_samples(grid).reshape(120, 120)
figure = go.Figure(go.Contour(x=x, y=y, z=np.maximum(density, -12), ncontours=15, colorscale="Blues", showscale=False))
figure.add_scatter(x=held_out[::4, 0], y=held_out[::4, 1], mode="markers", marker={"size": 3, "color": "black"})
figure.update_layout(xaxis_title="power", yaxis_title="temperature", title="What the fleet knows")
figure

# %%
# Ask. How usual is a reading, at a pump whose sensor never saw that regime? How likely is a power whose temperature is
# missing?

print("how usual:", fleet.p_value([[9.0, 42.0], [9.0, 60.0]]).round(4))
print("density with the temperature missing:", fleet.score_samples([[5.0, np.nan]]).round(2))

# %%
# A model small enough for the smallest sensor: the same density with three components. It goes on learning there.

small = everlearn.reduce(fleet, 3)
print(f"{small.n_components_} components: {small.score(held_out):.3f} nats a row")
small.partial_fit(held_out)
print(f"{small.n_samples_seen_} rows and counting")
