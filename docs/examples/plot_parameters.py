"""
How the parameters act
======================

The mixture finds its number of components by itself. Three numbers bound it: how many components there may be, how many
rows are kept to search on, and, if it is known, how many components there are. The mixture of the FIGMN paper is set
by two others: how wide a new component is, and how readily a row opens one.
"""

# %%
# A spiral, which no small number of ellipses fits well, and rows to judge by.

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from everlearn import FIGMN, IncrementalGaussianMixture

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
# **max_components** bounds the model; with the default the search decides.

models = [IncrementalGaussianMixture(max_components=most).fit(X) for most in (3, 8, "auto")]
draw(
    models,
    [f"at most {m.max_components}: {m.n_components_} components, {m.score(held_out):.2f}" for m in models],
)

# %%
# **reservoir** is the number of rows that are kept to search on. More of them find finer structure and make a larger
# file.

models = [IncrementalGaussianMixture(reservoir=rows).fit(X) for rows in (100, 400, 1600)]
draw(
    models,
    [f"{m.reservoir} rows kept: {m.n_components_} components, {m.score(held_out):.2f}" for m in models],
)

# %%
# **delta** of the paper's mixture is the variance of a new component in units of the variance of each column. Small
# components follow a curve better.

models = [FIGMN(delta=delta, beta=0.01).fit(X) for delta in (0.5, 0.1, 0.01)]
draw(
    models,
    [f"delta = {m.delta}: {m.n_components_} components, {m.score(held_out):.2f}" for m in models],
)

# %%
# **beta** is the share of a component's own rows that may open a new one.

models = [FIGMN(delta=0.05, beta=beta).fit(X) for beta in (0.1, 0.01, 1e-4)]
draw(
    models,
    [f"beta = {m.beta}: {m.n_components_} components, {m.score(held_out):.2f}" for m in models],
)

# %%
# **Choosing them.** The prequential score is the mean density that each row had *before* it was learned: no rows are
# held back, and one pass is enough.

figure = go.Figure()
deltas = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
for beta in (0.1, 0.01):
    scores = [FIGMN(delta=delta, beta=beta).partial_fit(X).prequential_score_ for delta in deltas]
    figure.add_scatter(x=deltas, y=scores, name=f"FIGMN, beta = {beta}")
found = IncrementalGaussianMixture().partial_fit(X).prequential_score_
figure.add_scatter(x=deltas, y=[found] * len(deltas), name="IncrementalGaussianMixture, no settings")
figure.update_layout(xaxis_title="delta", xaxis_type="log", yaxis_title="prequential log-likelihood per row")
figure
