"""
How the structure is found
==========================

A mixture reconsiders its components at row counts that double. Here are its searches at 200, 800 and 3,200 rows of the
same stream: what more rows say, a search can see.
"""

# %%
# Five groups, of which two overlap and one is rare.

import numpy as np
from plotly.subplots import make_subplots

from everlearn import IncrementalGaussianMixture

rng = np.random.default_rng(3)
centres = np.array([[0.0, 0.0], [2.4, 0.6], [7.0, 1.0], [3.5, 6.0], [8.0, 7.0]])
shapes = np.array([[[0.9, 0.4], [0.4, 0.6]], [[0.3, -0.2], [-0.2, 0.8]], *([[[0.7, 0.0], [0.0, 0.3]]] * 3)])
group = rng.choice(5, 3200, p=[0.35, 0.25, 0.2, 0.18, 0.02])
X = centres[group] + np.einsum("nij,nj->ni", np.linalg.cholesky(shapes)[group], rng.normal(size=(3200, 2)))

# %%
# The same model, asked three times. Each question is preceded by a search, which does not change what is learned.

ROWS = (200, 800, 3200)
model, answers = IncrementalGaussianMixture(), []
for start, stop in zip((0, *ROWS[:-1]), ROWS, strict=True):
    model.partial_fit(X[start:stop])
    answers.append((model.weights_, model.means_, model.covariances_))
    print(f"{stop:5,} rows: {model.n_components_} components, of the rows {np.sort(model.weights_)[::-1].round(2)}")

# %%
# Every ellipse holds nine tenths of the rows of its component.

circle = np.linspace(0, 2 * np.pi, 60)
circle = np.column_stack([np.cos(circle), np.sin(circle)]) * np.sqrt(-2 * np.log(0.1))
titles = [f"{n:,} rows: {len(answer[0])} components" for n, answer in zip(ROWS, answers, strict=True)]
figure = make_subplots(1, 3, subplot_titles=titles)
for column, (n, (_, means, covariances)) in enumerate(zip(ROWS, answers, strict=True), start=1):
    figure.add_scatter(
        x=X[:n, 0], y=X[:n, 1], mode="markers", marker={"size": 3, "color": "#8899aa"}, row=1, col=column
    )
    for mean, covariance in zip(means, covariances, strict=True):
        line = mean + circle @ np.linalg.cholesky(covariance).T
        figure.add_scatter(x=line[:, 0], y=line[:, 1], mode="lines", line={"color": "#b5461c"}, row=1, col=column)
figure.update_layout(showlegend=False, height=380, margin={"t": 40, "b": 20, "l": 20, "r": 20})
figure

# %%
# Without stored rows the searches after the warm-up of 500 rows work on the moments of the components.

without = IncrementalGaussianMixture(reservoir=0).partial_fit(X)
print(f"{without.n_components_} components, {model.score(X) - without.score(X):.3f} nats a row behind")
