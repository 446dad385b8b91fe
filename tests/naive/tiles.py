"""Sarsa(lambda) with tile coding: traces by (action, cell) in a dictionary, cells of a shifted grid by definition."""

import math


def active_cells(x, low, high, n_tiles, n_tilings):
    """The active cell of every grid: its coordinates, clipped to the n_tiles + 1 cells along an axis."""
    cells = []
    for grid in range(n_tilings):
        cell = []
        for a, (value, least, most) in enumerate(zip(x, low, high, strict=True)):
            shift = (grid * (2 * a + 1) / n_tilings) % 1.0
            along = math.floor((value - least) / ((most - least) / n_tiles) + shift)
            cell.append(min(max(along, 0), n_tiles))
        cells.append((grid, *cell))
    return cells


class TileSarsa:
    """Weights and traces by (action, cell)."""

    def __init__(self, alpha, decay):
        self.alpha, self.decay, self.weights, self.traces = alpha, decay, {}, {}

    def value(self, cells, action):
        return sum(self.weights.get((action, cell), 0.0) for cell in cells)

    def learn(self, cells, action, error):
        self.traces = {key: e * self.decay for key, e in self.traces.items() if e * self.decay > 0.01}
        self.traces = {(b, cell): e for (b, cell), e in self.traces.items() if cell not in cells}
        self.traces.update({(action, cell): 1.0 for cell in cells})
        for key, e in self.traces.items():
            self.weights[key] = self.weights.get(key, 0.0) + self.alpha * error * e
