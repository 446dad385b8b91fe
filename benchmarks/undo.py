"""What it costs that `partial_fit` can be undone: the copy of the state, beside learning 256 rows.

Below 256 rows there is no copy; interrupts wait instead, which costs two microseconds a call (second table).
Run: python benchmarks/undo.py
"""

import time

import numpy as np

import everlearn
from everlearn.base.interrupts import HeldInterrupts


def best(function, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    rng = np.random.default_rng(0)
    print("| model | columns | copy, us | 256 rows, us | share |")
    print("|---|---:|---:|---:|---:|")
    for D in (5, 50):
        X = rng.normal(size=(2256, D))
        models = everlearn.IncrementalGaussianMixture(), everlearn.OnlinePPCA(), everlearn.VariationalPPCA()
        for model in models:
            model.fit(X[:2000])
            copy, learn = best(model._snapshot), best(lambda m=model, rows=X[2000:]: m.partial_fit(rows))
            print(f"| {type(model).__name__} | {D} | {copy * 1e6:.0f} | {learn * 1e6:.0f} | {copy / learn:.1%} |")

    def hold():
        for _ in range(1000):
            with HeldInterrupts():
                pass

    print(f"\nHolding interrupts: {best(hold) * 1e3:.2f} us a call")


if __name__ == "__main__":
    main()
