"""
Modes and clusters
==================

A mixture needs several components to follow a bent or heavy-tailed group, so components are not clusters. The hills of
the density are: components that make one hill belong together.
"""

# %%
# Two crescents and a disc: several components follow each crescent.

import numpy as np
import plotly.graph_objects as go

import everlearn
from everlearn import IncrementalGaussianMixture

rng = np.random.default_rng(0)
angle = rng.uniform(0, np.pi, 1500)
upper = np.column_stack([np.cos(angle), np.sin(angle)])
lower = np.column_stack([1 - np.cos(angle), -0.5 - np.sin(angle)])
disc = np.array([3.4, 0.6]) + rng.normal(0, 0.25, (1500, 2))
X = rng.permutation(np.concatenate([upper, lower]) + rng.normal(0, 0.08, (3000, 2)))
X = rng.permutation(np.concatenate([X, disc]))

model = IncrementalGaussianMixture().fit(X)
print(f"{model.n_components_} components")

# %%
# The modes are the tops of the hills. They can be fewer than the components, as here, or more.

tops = everlearn.modes(model)
print(f"{len(tops.points)} modes, the highest at {tops.points[0].round(2)}")

# %%
# Between two components runs their ridgeline, on which all their modes and saddles lie. Its ratio is the height of the
# lowest saddle over that of the lower top: near one the two are one hill, near zero two.

pairs = [(i, j) for i in range(model.n_components_) for j in range(i)]
ratio = {pair: everlearn.ridgeline(model, pair).ratio for pair in pairs}
i, j = max((pair for pair in pairs if ratio[pair] < 0.5), key=lambda pair: ratio[pair])
curve = everlearn.ridgeline(model, (i, j))
figure = go.Figure(go.Scatter(x=curve.a, y=np.exp(curve.log_density), mode="lines"))
figure.update_layout(
    xaxis_title=f"from component {i} to {j}", yaxis_title="density", title=f"Along a ridgeline: ratio {curve.ratio:.2f}"
)
figure

# %%
# Clusters: components whose saddle reaches a third of the lower top, directly or in a chain. The density stays as it
# is.

cluster = everlearn.merge_unimodal(model, threshold=0.33)
print("cluster of each component:", cluster.tolist())
assert len(set(cluster)) == 3

labels = cluster[model.predict(X)]
figure = go.Figure()
for c in np.unique(cluster):
    rows = X[labels == c][::3]
    figure.add_scatter(x=rows[:, 0], y=rows[:, 1], mode="markers", marker={"size": 3}, name=f"cluster {c}")
figure.add_scatter(
    x=tops.points[:, 0], y=tops.points[:, 1], mode="markers", marker={"symbol": "x", "color": "black"}, name="modes"
)
figure.update_layout(title="Components joined into clusters", yaxis_scaleanchor="x")
figure
