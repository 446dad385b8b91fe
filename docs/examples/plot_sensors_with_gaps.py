"""
Sensors with gaps: learn, score, fill, ask
==========================================

Sensors fail, and rows come with holes. The mixture learns from what a row shows, scores what it shows, fills what it
does not, and answers any columns from any others.
"""

# %%
# Four sensors of a pump that runs slowly or fast: speed, flow, pressure and temperature. Three values in ten are
# missing.

import numpy as np
import plotly.graph_objects as go

from everlearn import IncrementalGaussianMixture

rng = np.random.default_rng(3)
names = ["speed", "flow", "pressure", "temperature"]


def pump(n):
    fast = rng.random(n) < 0.4
    speed = np.where(fast, 1800, 900) + rng.normal(0, 60, n)
    flow = speed / 30 + rng.normal(0, 1.5, n)
    pressure = 2 + (speed / 1000) ** 2 + rng.normal(0, 0.1, n)
    temperature = 40 + 12 * pressure + rng.normal(0, 3, n)
    return np.column_stack([speed, flow, pressure, temperature])


def with_gaps(rows):
    return np.where(rng.random(rows.shape) < 0.3, np.nan, rows)


stream, later = pump(4000), pump(1000)

# %%
# **Learn.** NaN means "not observed"; nothing needs to be filled in beforehand, and rows may come one by one.

model = IncrementalGaussianMixture()
for batch in np.array_split(with_gaps(stream), 40):
    model.partial_fit(batch)
print(f"{model.n_samples_seen_} rows, {model.n_components_} components")

# %%
# **Score.** A row is judged by the columns it shows. The second row here has a pressure that does not belong to its
# flow; each value by itself is usual.

rows = np.array([[np.nan, 30.0, 2.8, np.nan], [np.nan, 30.0, 5.2, np.nan]])
print("log-density:", model.score_samples(rows).round(1))
print("how usual:  ", model.p_value(rows).round(4))

# %%
# **Fill.** Gaps take their expected value given the rest of the row, with a standard deviation.

gappy = with_gaps(later)
filled, std = model.impute(gappy, return_std=True)
gaps = np.isnan(gappy)
for column, name in enumerate(names):
    at = gaps[:, column]
    error = np.sqrt(np.mean((filled - later)[at, column] ** 2))
    print(f"{name:12s} error {error:7.2f}   spread of the column {later[:, column].std():7.2f}")

# %%
# The stated uncertainty is on the cautious side: of a Gaussian, two thirds lie within one standard deviation.

inside = np.abs(filled - later)[gaps] < std[gaps]
print(f"within one standard deviation: {inside.mean():.0%}")

# %%
# **Ask.** Any columns from any others: the flow for a given pressure, with the interval that holds nine in ten.

pressure = np.linspace(2.4, 6.0, 60)
question = np.full((60, 4), np.nan)
question[:, 2] = pressure
flow, (low, high) = model.predict_columns(question, target=[1], interval=0.9)

figure = go.Figure()
figure.add_scatter(x=later[::2, 2], y=later[::2, 1], mode="markers", marker={"size": 3}, name="later rows")
figure.add_scatter(x=pressure, y=high[:, 0], line={"width": 0}, showlegend=False)
figure.add_scatter(x=pressure, y=low[:, 0], line={"width": 0}, fill="tonexty", name="nine in ten")
figure.add_scatter(x=pressure, y=flow[:, 0], name="expected flow")
figure.update_layout(xaxis_title="pressure", yaxis_title="flow", title="The flow, asked from the pressure")
figure

# %%
# A question may have two answers. Between the two speeds of the pump the interval is wide, and samples of the
# conditional distribution show why: they fall into two groups.

samples = model.sample_columns(question[20:21], target=[0], n_samples=500)
figure = go.Figure(go.Histogram(x=np.ravel(samples), nbinsx=40))
figure.update_layout(
    xaxis_title="speed", yaxis_title="samples", title=f"Speeds that go with a pressure of {pressure[20]:.1f}"
)
figure
