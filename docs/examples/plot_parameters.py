"""
How the parameters act
======================

Two numbers decide where components come from: `delta`, how wide a new component is, and `beta`, how far a row must be
from all components to open one. Merging decides how many of them answer.
"""

# %%
# A spiral, which no small number of ellipses fits well, and rows to judge by.

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

import everlearn
from everlearn import IncrementalGaussianMixture

rng = np.random.default_rng(1)


def spiral(n):
    t = rng.uniform(1, 4 * np.pi, n)
    return np.column_stack([t * np.cos(t), t * np.sin(t)]) + rng.normal(0, 0.4, (n, 2))


X, held_out = spiral(4000), spiral(2000)


def outline(mean, covariance, width=2.0):
    """Points at two standard deviations."""
    angle = np.linspace(0, 2 * np.pi, 60)
    return mean + width * np.column_stack([np.cos(angle), np.sin(angle)]) @ np.linalg.cholesky(covariance).T


def draw(models, titles):
    figure = make_subplots(1, len(models), subplot_titles=titles)
    for column, model in enumerate(models, start=1):
        figure.add_scatter(x=X[::8, 0], y=X[::8, 1], mode="markers", marker={"size": 2}, row=1, col=column)
        for mean, covariance in zip(model.means_, model.covariances_, strict=True):
            line = outline(mean, covariance)
            figure.add_scatter(x=line[:, 0], y=line[:, 1], line={"color": "black", "width": 1}, row=1, col=column)
    figure.update_layout(showlegend=False, height=360)
    return figure


# %%
# **delta** is the variance of a new component in units of the variance of each column. With one, the default,
# components start as wide as the data: right for few rows of many columns. Here are two columns, a curve and thousands
# of rows, and small components follow it better.

models = [IncrementalGaussianMixture(delta=delta).fit(X) for delta in (1.0, 0.1, 0.01)]
draw(
    models,
    [f"delta = {m.delta}: {m.n_components_} components, {m.score(held_out):.2f}" for m in models],
)

# %%
# **beta** is the share of a component's own rows that may open a new one. Half of them, the default, creates freely
# and leaves it to merging to tidy up; a thousandth only answers to what is truly new.

models = [IncrementalGaussianMixture(delta=0.1, beta=beta).fit(X) for beta in (0.5, 0.01, 1e-4)]
draw(
    models,
    [f"beta = {m.beta}: {m.n_components_} components, {m.score(held_out):.2f}" for m in models],
)

# %%
# **Merging.** Learning keeps many fine components; what answers is a copy in which those that differ little are one.
# `merging=False` shows, and asks, the fine ones.

models = [IncrementalGaussianMixture(delta=0.1, merging=merging).fit(X) for merging in (True, False)]
draw(
    models,
    [f"merging = {m.merging}: {m.n_components_} components, {m.score(held_out):.2f}" for m in models],
)

# %%
# **Choosing them.** :func:`everlearn.tune` lets several settings learn the same rows side by side and keeps the one
# that gave each row the highest density *before* learning it. No rows are held back, and one pass is enough.

candidates = [{"delta": delta, "beta": beta} for delta in (1.0, 0.3, 0.1, 0.03, 0.01) for beta in (0.5, 0.01)]
best, results = everlearn.tune(X, candidates=candidates)
for result in results[:4]:
    print({key: round(value, 3) for key, value in result.items()})
default = IncrementalGaussianMixture().fit(X)
print(f"held out: {best.score(held_out):.3f}; with the default settings {default.score(held_out):.3f}")

# %%
# The score that the race goes by, for every candidate:

figure = go.Figure()
for beta in (0.5, 0.01):
    ours = sorted((r["delta"], r["score"]) for r in results if r["beta"] == beta)
    figure.add_scatter(x=[d for d, _ in ours], y=[s for _, s in ours], name=f"beta = {beta}")
figure.update_layout(xaxis_title="delta", xaxis_type="log", yaxis_title="prequential log-likelihood a row")
figure
