"""
How the parameters act
======================

A mixture finds the number of its components and their shapes by itself. Parameters bound what is kept, or say what is
known beforehand.
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
    covariance = np.diag(covariance) if covariance.ndim == 1 else covariance
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
# **max_components** bounds what is kept. The number of components is found from the rows; where that is more than may
# be kept, those that cost least likelihood are merged.

models = [IncrementalGaussianMixture(max_components=most).fit(X) for most in (4, 12, "auto")]
draw(
    models,
    [f"at most {m.max_components}: {m.n_components_} components, {m.score(held_out):.2f}" for m in models],
)

# %%
# **n_components** asks for a number instead.

models = [IncrementalGaussianMixture(n_components=n).fit(X) for n in (2, 8, 16)]
draw(models, [f"{m.n_components_} components, {m.score(held_out):.2f}" for m in models])

# %%
# **covariance_type** "diag" leaves out how columns go together: cheaper in many columns, but a curve needs more
# components.

models = [IncrementalGaussianMixture(covariance_type=shape).fit(X) for shape in ("full", "diag")]
draw(models, [f"{m.covariance_type}: {m.n_components_} components, {m.score(held_out):.2f}" for m in models])

# %%
# **The rule of the paper.** :class:`everlearn.FIGMN` has two numbers in their place: `delta`, how wide a new component
# is, in units of the variance of each column, and `beta`, how far a row must be from all components to open one.

models = [FIGMN(delta=delta, beta=0.01).fit(X) for delta in (1.0, 0.1, 0.01)]
draw(models, [f"delta = {m.delta}: {m.n_components_} components, {m.score(held_out):.2f}" for m in models])

# %%
# **Choosing.** Every model scores each row just before it is learned, so that no rows need be held back.

settings = (1, 2, 4, 8, 16, 32)
models = [IncrementalGaussianMixture(n_components=n).partial_fit(X) for n in settings]
figure = go.Figure(go.Scatter(x=settings, y=[m.prequential_score_ for m in models]))
figure.update_layout(xaxis_title="components", xaxis_type="log", yaxis_title="prequential log-likelihood a row")
figure
