"""The value function of an agent: regions of states, and a regression of value on state for each action."""

import numpy as np

from naive.gaussians import gaussian_density


class ValueFunction:
    """Regions and values as plain Gaussians, with explicit inverses."""

    def __init__(self, settings, n_actions, capacity):
        self.settings, self.n_actions, self.capacity = settings, n_actions, capacity
        self.regions, self.values, self.used, self.time = [], [], [], 0

    def answer(self, x, action):
        """Expected value, and the variance of that expectation, by the law of total variance."""
        d, settings = len(x), self.settings
        terms = [(np.exp(settings.log_background), settings.prior_value, settings.variances[d])]
        for (count, mean, covariance), values in zip(self.regions, self.values, strict=True):
            if action in values:
                count, joint, spread = values[action]
                gain = np.linalg.solve(spread[:d, :d], spread[:d, d])
                value = joint[d] + gain @ (x - joint[:d])
                density = count * gaussian_density(x, mean, covariance)
                terms.append((density, value, (spread[d, d] - gain @ spread[:d, d]) / count))
        weights, means, variances = np.array(terms).T
        if len(terms) == 1:
            return settings.prior_value, settings.variances[d]
        weights = weights / weights.sum()
        mean = weights @ means
        return mean, weights @ (variances + (means - mean) ** 2)

    def learn(self, x, action, value):
        z = np.append(x, value)
        d2 = [(x - m) @ np.linalg.solve(C, x - m) for _, m, C in self.regions]
        if min(d2, default=np.inf) >= self.settings.threshold:
            self._create(z, action)
        else:
            densities = np.array([n * gaussian_density(x, m, C) for n, m, C in self.regions])
            for j, p in enumerate(densities / densities.sum()):
                if p >= 0.01:
                    self._update(j, action, z, p)
        self.time += 1

    def _create(self, z, action):
        if len(self.regions) == self.capacity:
            j = int(np.argmin(self.used))
        else:
            j = len(self.regions)
            self.regions.append(None), self.values.append(None), self.used.append(0)
        V = np.diag(self.settings.variances)
        self.regions[j], self.values[j], self.used[j] = (1.0, z[:-1], V[:-1, :-1]), {action: (1.0, z, V)}, self.time

    def _update(self, j, action, z, p):
        self.used[j] = self.time
        self.regions[j] = self._moved(self.regions[j], z[:-1], p, np.inf)
        known = self.values[j].get(action)
        fresh = (p, z, np.diag(self.settings.variances))
        self.values[j][action] = fresh if known is None else self._moved(known, z, p, self.settings.max_count)

    def _moved(self, gaussian, z, p, memory):
        count, mean, covariance = gaussian
        count = min(count + p, memory)
        w = min(p / count, 0.9)
        e = z - mean
        floor = w * self.settings.floor * np.diag(self.settings.variances[: len(z)])
        return count, mean + w * e, (1 - w) * covariance + w * (1 - w) * np.outer(e, e) + floor

    def learn_episode(self, states, actions, rewards, discounts, terminated, trace):
        targets, G = [], 0.0
        for t in reversed(range(len(actions))):
            last = t == len(actions) - 1
            best = max(self.answer(states[t + 1], a)[0] for a in range(self.n_actions))
            if last:
                G = rewards[t] if terminated else rewards[t] + discounts[t] * best
            else:
                G = rewards[t] + discounts[t] * ((1 - trace) * best + trace * G)
            self.learn(states[t], actions[t], G)
            targets.append(G)
        return targets[::-1]
