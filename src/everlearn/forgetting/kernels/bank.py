"""Decisions of a bank of memories: weights, re-seeding, the change test and the outlier window.

The bank has two slots of J members. One slot is active; after a suspected change the other holds the stash, the bank as
it was before, until the evidence says which of the two is right. Everything here works on the members' scores alone.
"""

import math

import numpy as np

from everlearn.linalg.compile import kernel

# What `control` holds.
ACTIVE, TRIAL, HOLD, SUSPECT, ROWS, CHANGES = 0, 1, 2, 3, 4, 5
CONTROL_SIZE = 6

# What `decide` answers, as bits.
LEARN, LEARN_STASH, CHANGE = 1, 2, 4

SHARE = 1e-3  # weight that flows back to the prior in each row
RESEED_BEHIND = 6.0  # nats behind the best at which a longer memory is given up
RESEED_AT = 4.0  # nats behind the best at which its successor starts
LOG_STAY, LOG_CHANGE = math.log(0.8), math.log(0.2)  # a row on trial costs little: better too often
LOG_INLIER, LOG_OUTLIER = math.log(0.99), math.log(0.01)  # a row more likely an outlier is not learned
HOLD_ROWS = 5  # rows after a reset without a new test
TRIAL_ROWS = 10  # rows within which a suspected change is accepted or taken back
HASTE = 1.0  # nats: a change that is overlooked costs more than one that is taken back
ACCEPT, RESTORE = -3.0, 5.0  # log-odds against a change that decide earlier
RESET_SAMPLES = 0.1  # what the memory of a reset model is worth


@kernel
def forgetting_factor(n_eff, cap, weight):
    """lambda = min(1, (N - w)/N_eff): nothing is forgotten until the memory of N samples is full."""
    if n_eff + weight <= cap:
        return 1.0
    return max(cap - weight, 0.0) / n_eff


@kernel
def forgetting_factors(n_eff, caps, size, weight):
    """lambda of every member in both slots, its cap multiplied by `size`."""
    factors = np.empty(n_eff.shape)
    for slot in range(n_eff.shape[0]):
        for j in range(n_eff.shape[1]):
            factors[slot, j] = forgetting_factor(n_eff[slot, j], caps[j] * size, weight)
    return factors


@kernel
def log_sum(log_weights, scores):
    """ln sum_j w_j exp(L_j)."""
    top = -np.inf
    for j in range(len(scores)):
        top = max(top, log_weights[j] + scores[j])
    if top == -np.inf:
        return top
    total = 0.0
    for j in range(len(scores)):
        total += math.exp(log_weights[j] + scores[j] - top)
    return top + math.log(total)


@kernel
def log_add(a, b):
    """ln(e^a + e^b)."""
    top = max(a, b)
    return top + math.log1p(math.exp(min(a, b) - top)) if top > -np.inf else top


@kernel
def reweigh(log_weights, log_prior, scores):
    """w_j <- w_j exp(L_j), normalised, then (1 - share) w + share pi; in place."""
    total = log_sum(log_weights, scores)
    if total == -np.inf:
        return
    for j in range(len(scores)):
        w = math.exp(log_weights[j] + scores[j] - total)
        log_weights[j] = math.log((1.0 - SHARE) * w + SHARE * math.exp(log_prior[j]))


@kernel
def settled(control):
    """The slot that was trusted last: the stash during a trial, else the active one."""
    return 1 - control[ACTIVE] if control[TRIAL] > 0 else control[ACTIVE]


@kernel
def best(log_weights):
    """Index of the member with the largest weight, the first of equals."""
    k = 0
    for j in range(1, len(log_weights)):
        if log_weights[j] > log_weights[k]:
            k = j
    return k


@kernel
def doubt(control, changes, inlier, outlier, background):
    """Log-odds against a change with this row, before the next ones: it comes at a rate of e/n after n quiet rows."""
    n = control[ROWS]
    if control[CHANGES] > 0:
        n -= changes[(control[CHANGES] - 1) % len(changes)]
    return max(log_add(inlier, outlier) - background + math.log(n) - HASTE, 0.0)


@kernel
def decide(control, evidence, changes, log_prior, log_weights, scores, background):
    """Take one row into account: reweigh the members, and suspect, accept or take back a change.

    Parameters
    ----------
    control : int array
        Active slot, rows left in the trial, rows left without a test, row of the suspected change, rows seen, changes
        accepted. Changed in place.
    evidence : float array of shape (1,)
        Log-odds of the stash against the active slot, since the suspected change. Changed in place.
    changes : int array
        Ring of the rows of accepted changes. Changed in place.
    log_prior : array of shape (J,)
        Logarithms of the prior weights pi.
    log_weights : array of shape (2, J)
        Logarithms of the weights in both slots. Changed in place.
    scores : array of shape (2, J)
        Log predictive density of the row under each member; those of the stash count during a trial only.
    background : float
        Log density of the row if the past meant nothing.

    Returns
    -------
    int
        The bits LEARN (the active slot learns the row), LEARN_STASH (the stash learns it), CHANGE (before learning,
        fill the slot that is active now with reset copies of the best member of the other).
    """
    control[ROWS] += 1
    control[HOLD] = max(control[HOLD] - 1, 0)
    a = control[ACTIVE]
    value = log_sum(log_weights[a], scores[a])
    if control[TRIAL] > 0:
        return _weigh_trial(control, evidence, changes, log_prior, log_weights, scores, background, value)
    if control[HOLD] == 0 and value + LOG_STAY < background + LOG_CHANGE:
        control[ACTIVE] = 1 - a
        control[TRIAL] = TRIAL_ROWS
        control[HOLD] = HOLD_ROWS + 1
        control[SUSPECT] = control[ROWS] - 1
        inlier, outlier = value + LOG_INLIER, background + LOG_OUTLIER
        evidence[0] = doubt(control, changes, inlier, outlier, background)
        for j in range(len(log_prior)):
            log_weights[1 - a, j] = log_prior[j]
        if inlier < outlier:
            return LEARN | CHANGE
        reweigh(log_weights[a], log_prior, scores[a])
        return LEARN | CHANGE | LEARN_STASH
    reweigh(log_weights[a], log_prior, scores[a])
    return LEARN


@kernel
def _weigh_trial(control, evidence, changes, log_prior, log_weights, scores, background, value):
    """Old bank or new bank? Each may call the row an outlier; the stash does not learn it then."""
    a, s = control[ACTIVE], 1 - control[ACTIVE]
    inlier = log_sum(log_weights[s], scores[s]) + LOG_INLIER
    outlier = background + LOG_OUTLIER
    evidence[0] += log_add(inlier, outlier) - log_add(value + LOG_INLIER, outlier)
    control[TRIAL] -= 1
    restore = evidence[0] > RESTORE or (control[TRIAL] == 0 and evidence[0] > 0.0)
    accept = not restore and (evidence[0] < ACCEPT or control[TRIAL] == 0)
    actions = 0
    if restore:
        control[ACTIVE], control[TRIAL], control[HOLD] = s, 0, 0
    else:
        reweigh(log_weights[a], log_prior, scores[a])
        actions = LEARN
    if accept:
        changes[control[CHANGES] % len(changes)] = control[SUSPECT]
        control[CHANGES] += 1
        control[TRIAL] = 0
    elif inlier >= outlier:
        reweigh(log_weights[s], log_prior, scores[s])
        actions |= LEARN if restore else LEARN_STASH
    return actions


@kernel
def reseed(log_weights, caps, successors):
    """Members of longer memory that are far behind the best start again from it.

    Marks them in `successors`, sets their weights, and returns the index of the best, whose model they copy.
    """
    k = best(log_weights)
    for j in range(len(caps)):
        successors[j] = caps[j] > caps[k] and log_weights[k] - log_weights[j] > RESEED_BEHIND
        if successors[j]:
            log_weights[j] = log_weights[k] - RESEED_AT
    return k


@kernel
def answering(control, evidence, log_weights):
    """Slot and member that answer: the stash while the evidence is not against it, its best member there."""
    slot = control[ACTIVE]
    if control[TRIAL] > 0 and evidence[0] >= 0.0:
        slot = 1 - slot
    return slot, best(log_weights[slot])
