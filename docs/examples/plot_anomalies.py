"""
Anomalies in a machine
======================

A machine sends six sensors, with values missing. Nobody has told the model what is normal, what a fault looks like, or
that the machine has regimes. It scores every row before it learns it; what it found improbable is set beside the truth
here, which the demonstration stream carries along.
"""

# %%
# The stream that ``everlearn learn --demo`` learns: idle, cruise and heavy load by turns, faults of one to four rows,
# and from row 8,400 on a bearing that shows wear.

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from sklearn.metrics import roc_auc_score

from everlearn import AnomalyDetector, IncrementalGaussianMixture
from everlearn.datasets.demo import COLUMNS, FAULTS, REGIMES, demo_stream, join
from everlearn.reporting import figures

stream = join(list(demo_stream(12_000, seed=1)))
faulty = stream.fault > 0
print("one row:", dict(zip(COLUMNS, stream.X[3].round(1).tolist(), strict=True)))
print(f"{np.isnan(stream.X).any(axis=1).mean():.0%} of the rows have a gap, {faulty.mean():.1%} a fault")

# %%
# **Score, then learn.** `prequential` does both in one pass: it returns the log-density of each row as it was just
# before the row was learned. It may be called with one row, as the rows come, or with many; the answers are the same.
# `max_components` keeps the model coarse, so that it does not come to expect faults that keep coming.

model = IncrementalGaussianMixture(max_components=50)
surprise = -model.prequential(stream.X)
print(f"{model.n_components_} components after {model.n_samples_seen_} rows")

# %%
# **Where to cut.** A surprise in nats means little by itself. Take the share of rows that you can afford to look at:
# here the oddest one in a hundred, measured on the first part of the stream, before the wear.

row = np.arange(len(surprise))
early = (row >= 1000) & (row < 8400)
alarm_from = np.quantile(surprise[early], 0.99)
alarm = surprise > alarm_from
auc = roc_auc_score(faulty[early], surprise[early])
print(f"a fault is more surprising than a normal row in {auc:.1%} of all pairs (ROC-AUC)")
for number, name in enumerate(FAULTS):
    rows = early & (stream.fault == number)
    print(f"{name:18s} {rows.sum():5d} rows, {alarm[rows].mean():6.1%} of them alarms")

# %%
# Faults stand out although some of them, a slipping belt, have no value that is unusual by itself. The block of high
# surprise from row 8,400 on is something else.

figure = go.Figure(go.Scattergl(x=row[1000:], y=surprise[1000:], mode="lines", line={"width": 1}, name="surprise"))
figure.add_scatter(
    x=row[1000:][faulty[1000:]], y=surprise[1000:][faulty[1000:]], mode="markers", name="faults", marker={"size": 6}
)
figure.add_hline(y=alarm_from, line_dash="dot")
figure.update_layout(xaxis_title="row", yaxis_title="surprise, nats", yaxis_range=[0, 80], legend={"orientation": "h"})
figure

# %%
# **Which sensor?** Ask for each value from all the others, and see by how many standard deviations it is off. Nothing
# new is learned for that: one model answers any columns from any others.

rows = np.flatnonzero(early & alarm & faulty)
off = np.empty((len(rows), len(COLUMNS)))
for column in range(len(COLUMNS)):
    expected, std = model.predict_columns(stream.X[rows], target=column, return_std=True)
    off[:, column] = np.abs(stream.X[rows, column] - expected[:, 0]) / std[:, 0]
blamed = np.nanargmax(off, axis=1)
for number, name in list(enumerate(FAULTS))[1:]:
    counts = np.bincount(blamed[stream.fault[rows] == number], minlength=len(COLUMNS))
    print(f"{name:18s}", {COLUMNS[i]: int(counts[i]) for i in np.argsort(-counts) if counts[i]})

# %%
# A slipping belt breaks the bond between speed and torque on one side and power and current on the other, and the blame
# goes to whichever of them is predicted most sharply.

# %%
# **With a p-value, a column and a sentence.** `AnomalyDetector` does all of this by itself, and looks at time as well.
# `explain` says of a row what makes it strange, and `everlearn.reporting.figures.blame` draws it, as the report of
# ``everlearn learn --model detector --report`` does: the column to blame comes first.

detector = AnomalyDetector(grace_period=1000)
frame = pd.DataFrame(stream.X, columns=COLUMNS)
first = rows[rows >= 4000][0]
detector.partial_fit(frame[:first])
told = detector.explain(frame[first : first + 1])
print(FAULTS[stream.fault[first]], "-", told.text())
go.Figure(figures.blame(told))

# %%
# **A fault or a new normal?** The model keeps a list of events. A change is a drop of the score that stays, not one odd
# row. The worn bearing is noticed within some twenty rows; as it is learned, the surprise fades, and the alarms with
# it. A new regime may be learned before the drop has stayed for long enough: of five such streams three show a change
# where the wear begins, and all of them its first rows as novelties or high surprise.

worn = np.flatnonzero(stream.regime == REGIMES.index("worn"))
changes = np.array([event.row for event in model.events_ if event.kind == "change"])
after = changes[changes >= worn[0]]
print(f"the bearing is worn from row {worn[0]} on, and the next change was noticed at row {after[0]}")
print(f"changes before the wear: {len(changes) - len(after)}; since then: {len(after)}")
parts = np.array_split(worn, 8)
figure = go.Figure(go.Bar(x=[f"rows {p[0]}-{p[-1]}" for p in parts], y=[alarm[p].mean() for p in parts]))
figure.update_layout(title="Alarms while the bearing is worn", yaxis_title="share of rows", yaxis_tickformat=".0%")
figure

# %%
# **In the field.** Save the model and let it watch: ``everlearn score machine.evl today.csv --alarm 1e-6`` ends with
# status 3 if a row was odd. Watching does not change a model; go on with `prequential` where it should learn too.

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "machine.evl")
