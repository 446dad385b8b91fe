"""
Continual learning: what is kept and what is lost
=================================================

Data rarely come mixed. Here the classes of handwritten digits come one after another, and the question is what a model
still knows of the first when the last has come.
"""

# %%
# A protocol orders the data into tasks: here one class after another. `iid`, `disjoint` and `permuted` are others.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import SGDClassifier

from everlearn import IncrementalGaussianMixture
from everlearn.continual import change_report, class_by_class, prequential, run, running_mean

X, y = load_digits(return_X_y=True)
X = PCA(12, random_state=0).fit_transform(X)
tasks = list(class_by_class(X, y, order=range(5)))

# %%
# A linear classifier trained by gradient steps follows the latest classes and forgets the others: read down the column
# of a task, from the row in which it was learned.

linear = run(SGDClassifier(random_state=0), tasks, untrained=0.2)
print(linear)

# %%
# A mixture that grows keeps them: its score, the mean log-density of held-out rows of a class, stays about as high as
# it was. BWT is what later classes did to earlier ones; forgetting compares with the best that a class ever had.

mixture = IncrementalGaussianMixture(scale=X.std(axis=0))
kept = run(mixture, tasks, with_interference=True)
print(kept)
kept.plot()

# %%
# Forgetting can be wanted, where the world changes for good. It shows:

faded = run(IncrementalGaussianMixture(scale=X.std(axis=0), forgetting=0.98), tasks)
print(faded.table().splitlines()[-1])
faded.plot()

# %%
# Interference asks what learning another class first did to a class, beside learning it alone.

kept.plot_interference()

# %%
# In a stream there is no end at which to test: each row is scored, then learned (test-then-train).

order = np.argsort(y, kind="stable")[:900]
scores = prequential(IncrementalGaussianMixture(scale=X.std(axis=0)), X[order])
print("mean log-density of the last hundred rows:", running_mean(scores, window=100)[[200, 400, 800]].round(1))

# %%
# Changes are there to be found, too. A detector is judged beside one that fires at every row, which finds everything.

model = IncrementalGaussianMixture(scale=X.std(axis=0)).partial_fit(X[order])
alarms = [event.row for event in model.events_ if event.kind == "change"]
changes = np.flatnonzero(np.diff(y[order])) + 1
print(change_report(alarms, changes, len(order), tolerance=60))
