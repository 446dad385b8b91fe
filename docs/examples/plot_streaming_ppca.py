"""
Fewer dimensions from a stream with gaps
========================================

Twenty-four sensors follow three hidden causes, and three readings in ten never arrive. The model learns the causes as
the rows come in, fills their gaps with intervals before it learns them, and needs no complete row at all.
"""

# %%
# The stream. Each hidden cause swings at its own pace; each sensor mixes them and adds noise. We keep the truth aside
# to compare with.

import numpy as np
import plotly.graph_objects as go
from sklearn.decomposition import IncrementalPCA

from everlearn import OnlinePPCA

rng = np.random.default_rng(3)
n_rows, n_sensors = 3000, 24
t = np.arange(n_rows)[:, None]
causes = np.sin(t / np.array([40.0, 90.0, 17.0])) * [3.0, 2.0, 1.0] + 0.5 * rng.normal(size=(n_rows, 3))
mixing = rng.normal(size=(3, n_sensors))
truth = 20 + causes @ mixing + 0.3 * rng.normal(size=(n_rows, n_sensors))
stream = np.where(rng.random(truth.shape) < 0.3, np.nan, truth)
print(f"{np.isnan(stream).any(axis=1).mean():.1%} of the rows have a gap")

# %%
# Fill first, learn then. `impute` gives the expected value of every gap given what did arrive in its row, and how sure
# that is. IncrementalPCA has no notion of a gap, so it gets each gap filled with the mean of its sensor so far.

model, peer = OnlinePPCA(n_components=3), IncrementalPCA(n_components=3)
filled, std = np.empty_like(truth), np.empty_like(truth)
true_axes = np.linalg.qr(mixing.T)[0]


def angle(components):
    """Largest angle between the learned axes and the true ones, in degrees."""
    cosines = np.linalg.svd(components @ true_axes, compute_uv=False)
    return np.degrees(np.arccos(np.clip(cosines.min(), 0, 1)))


model.partial_fit(stream[:20])
steps, angles, peer_angles = [], [], []
for start in range(20, n_rows, 20):
    rows = stream[start : start + 20]
    filled[start : start + 20], std[start : start + 20] = model.impute(rows, return_std=True)
    model.partial_fit(rows)
    peer.partial_fit(np.where(np.isnan(rows), np.nanmean(stream[: start + 20], axis=0), rows))
    steps.append(start)
    angles.append(angle(model.components_))
    peer_angles.append(angle(peer.components_))

# %%
# One sensor over two hundred rows: the line is what it measured, the dots are the readings that were lost, as the model
# filled them in at the time, with their 90 % intervals.

part = slice(2000, 2200)
lost = np.isnan(stream[part, 0])
row = np.arange(2000, 2200)
figure = go.Figure(go.Scatter(x=row, y=truth[part, 0], mode="lines", name="truth", line_color="lightgray"))
figure.add_scatter(
    x=row[lost],
    y=filled[part, 0][lost],
    mode="markers",
    name="filled gaps",
    error_y={"type": "data", "array": 1.645 * std[part, 0][lost], "thickness": 1},
)
figure.update_layout(xaxis_title="row", yaxis_title="sensor 0", title="Gaps filled as the stream came in")
figure

# %%
# The intervals are honest: nine in ten hold the value that was lost.

gap = np.isnan(stream[20:])
error = (filled - truth)[20:][gap]
print(f"{np.mean(np.abs(error) < 1.645 * std[20:][gap]):.1%} of the lost values lie in their 90 % interval")
print(f"error of a filled value: {np.sqrt(np.mean(error**2)):.2f}; spread of a sensor: {truth.std(axis=0).mean():.2f}")

# %%
# The axes themselves. The filled-in means pull the peer's axes away for good; the likelihood of what was observed does
# not.

figure = go.Figure(go.Scatter(x=steps, y=angles, name="OnlinePPCA, gaps left open"))
figure.add_scatter(x=steps, y=peer_angles, name="IncrementalPCA, gaps filled with means")
figure.update_layout(xaxis_title="row", yaxis_title="degrees", title="Largest angle to the true axes", yaxis_type="log")
figure

# %%
# Three numbers per row are enough to go on with. `transform` takes rows with gaps too.

print(model.transform(stream[-3:]).round(1))
print(f"noise of a sensor: {np.sqrt(model.noise_variance_):.2f} (0.30 in truth)")
