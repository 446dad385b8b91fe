"""
Classes that arrive one by one
==============================

Handwritten digits come sorted: all zeros first, then all ones, and so on. When a new digit comes, nothing of the old
ones is at hand any more. A classifier that follows the latest rows forgets; one with a mixture for each class does not.
"""

# %%
# 1,797 digits of 8 by 8 pixels. Three in ten are kept aside to judge by.

import numpy as np
import plotly.graph_objects as go
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from everlearn import IncrementalGaussianMixtureClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)

# %%
# **One class after another.** scikit-learn wants to hear of all classes in advance; here a label that was never seen
# opens a class. `scale` says how far pixels spread, since the first digit alone cannot tell: many of its pixels are
# always blank.

model = IncrementalGaussianMixtureClassifier(scale=np.full(64, 4.0))
linear = SGDClassifier(random_state=0)
accuracy = {"a mixture for each class": [], "linear classifier, gradient steps": []}
for digit in range(10):
    rows = y == digit
    model.partial_fit(X[rows], y[rows])
    linear.partial_fit(X[rows], y[rows], classes=np.arange(10))
    seen = y_test <= digit
    for name, classifier in zip(accuracy, (model, linear), strict=True):
        accuracy[name].append(classifier.score(X_test[seen], y_test[seen]))

figure = go.Figure()
for name, values in accuracy.items():
    figure.add_scatter(x=np.arange(10), y=values, name=name, mode="lines+markers")
figure.update_layout(
    xaxis_title="latest digit learned",
    yaxis_title="accuracy on all digits seen so far",
    yaxis_tickformat=".0%",
    yaxis_range=[0, 1.05],
    legend={"orientation": "h", "y": 1.1},
)
figure

# %%
# The linear classifier calls everything by the latest name. Learning a class leaves the mixtures of the others as they
# are, so that the order of the classes matters little:

shuffled = IncrementalGaussianMixtureClassifier(scale=np.full(64, 4.0)).partial_fit(X, y)
print(f"one after another {model.score(X_test, y_test):.1%}, in random order {shuffled.score(X_test, y_test):.1%}")

# %%
# **Probabilities that mean what they say.** The expected calibration error is the mean difference between the
# probability of the predicted class and how often it is right.

print(f"calibration error {model.calibration_error(X_test, y_test):.1%}")
doubtful = np.argmin(model.predict_proba(X_test).max(axis=1))
probability = model.predict_proba(X_test[[doubtful]])[0]
best = np.argsort(-probability)[:2]
print("the most doubtful digit:", {int(model.classes_[i]): round(float(probability[i]), 2) for i in best})
figure = go.Figure(go.Heatmap(z=X_test[doubtful].reshape(8, 8)[::-1], colorscale="Greys", showscale=False))
figure.update_layout(title=f"It is a {y_test[doubtful]}", width=260, height=280)
figure

# %%
# **Half of the pixels missing.** NaN means "not observed", when learning and when asking.

rng = np.random.default_rng(0)
torn = np.where(rng.random(X_test.shape) < 0.5, np.nan, X_test)[:50]
print(f"accuracy with half of the pixels missing: {model.score(torn, y_test[:50]):.0%}")

# %%
# **Two that met different classes.** One classifier knows 0 to 4, another, elsewhere, 5 to 9. Their sum knows all ten,
# and only the models have travelled, with the sample of rows that each keeps.

low, high = (IncrementalGaussianMixtureClassifier(scale=np.full(64, 4.0)) for _ in range(2))
low.partial_fit(X[y < 5], y[y < 5])
high.partial_fit(X[y >= 5], y[y >= 5])
together = low + high
print(f"{len(together.classes_)} classes, accuracy {together.score(X_test, y_test):.1%}")
