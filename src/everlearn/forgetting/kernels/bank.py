"""Decisions of a bank of forgetting horizons: weights, re-seeding, the change test and the outlier window.

The bank has two slots of J members. One slot is active; after a suspected change the other holds the previous bank, as
it was before, until the evidence says which of the two is right. Everything here works on the members' scores alone;
`bank` is an `everlearn.forgetting.bank.BankState`, updated in place.
"""

import math

import numpy as np

from everlearn.linalg.compile import inner, kernel

# What `decide` answers, as bits: the active slot learns the row, the previous one does, a trial begins.
LEARN, LEARN_PREVIOUS, CHANGE = 1, 2, 4

SHARE = 1e-3  # weight that flows back to the prior in each row (fixed share: no member is lost for good)
RESEED_BEHIND = 6.0  # nats behind the best at which a longer horizon is given up
RESEED_AT = 4.0  # nats behind the best at which its successor starts
# Prior odds of a change. High on purpose: a false trial is reverted within TRIAL_ROWS.
LOG_STAY, LOG_CHANGE = math.log(0.8), math.log(0.2)
LOG_INLIER, LOG_OUTLIER = math.log(0.99), math.log(0.01)  # a row more likely an outlier is not learned
HOLD_ROWS = 5  # rows after a restart without a new test
TRIAL_ROWS = 10  # rows within which a suspected change is accepted or reverted
HASTE = 1.0  # nats in favour of a change: one that is overlooked costs more than one that is reverted
ACCEPT, REVERT = -3.0, 5.0  # log-odds against a change that end a trial early
RESET_SAMPLES = 0.1  # effective samples that a restarted model keeps of its past


@inner
def forgetting_factor(n_eff, horizon, weight):
    """lambda = min(1, (N - w)/N_eff): nothing is forgotten until the horizon of N samples is reached."""
    if n_eff + weight <= horizon:
        return 1.0
    return max(horizon - weight, 0.0) / n_eff


@kernel
def forgetting_factors(n_eff, horizons, size, weight):
    """lambda of every member in both slots, its horizon multiplied by `size`."""
    factors = np.empty(n_eff.shape)
    for slot in range(n_eff.shape[0]):
        for j in range(n_eff.shape[1]):
            factors[slot, j] = forgetting_factor(n_eff[slot, j], horizons[j] * size, weight)
    return factors


@inner
def log_mixture(log_weights, scores):
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


@inner
def log_add(a, b):
    """ln(e^a + e^b)."""
    top = max(a, b)
    return top + math.log1p(math.exp(min(a, b) - top)) if top > -np.inf else top


@inner
def reweigh(log_weights, log_prior, scores):
    """w_j <- w_j exp(L_j), normalised, then (1 - share) w + share pi; in place."""
    total = log_mixture(log_weights, scores)
    # No member gives the row any density: it says nothing about which of them is right.
    if total == -np.inf:
        return
    for j in range(len(scores)):
        w = math.exp(log_weights[j] + scores[j] - total)
        log_weights[j] = math.log((1.0 - SHARE) * w + SHARE * math.exp(log_prior[j]))


@inner
def trusted_slot(bank):
    """The slot that was trusted last: the previous one during a trial, else the active one."""
    return 1 - bank.active[0] if bank.trial_rows[0] > 0 else bank.active[0]


@inner
def best(log_weights):
    """Index of the member with the largest weight, the first of equals."""
    k = 0
    for j in range(1, len(log_weights)):
        if log_weights[j] > log_weights[k]:
            k = j
    return k


@inner
def prior_log_odds(bank, inlier, outlier, background):
    """Log-odds against a change with this row, before the next ones: it comes at a rate of e/n after n quiet rows."""
    # Rows since the last accepted change.
    n = bank.n_rows[0]
    if bank.n_changes[0] > 0:
        n -= bank.changes[(bank.n_changes[0] - 1) % len(bank.changes)]
    return max(log_add(inlier, outlier) - background + math.log(n) - HASTE, 0.0)


@inner
def decide(bank, scores, background):
    """Take one row into account, in place: reweigh the members, and suspect, accept or revert a change.

    Parameters
    ----------
    bank : BankState
        The bank.
    scores : array of shape (2, J)
        Log predictive density of the row under each member; those of the previous slot count during a trial only.
    background : float
        Log density of the row if the past meant nothing.

    Returns
    -------
    int
        The bits LEARN (the active slot learns the row), LEARN_PREVIOUS (the other one does), CHANGE (before learning,
        fill the slot that is active now with restarted copies of the best member of the other).
    """
    bank.n_rows[0] += 1
    bank.hold_rows[0] = max(bank.hold_rows[0] - 1, 0)
    a = bank.active[0]
    log_prior = bank.log_prior
    value = log_mixture(bank.log_weights[a], scores[a])
    if bank.trial_rows[0] > 0:
        return continue_trial(bank, scores, background, value)
    # Bayes factor of one row against the prior odds of a change.
    if bank.hold_rows[0] == 0 and value + LOG_STAY < background + LOG_CHANGE:
        bank.active[0] = 1 - a
        bank.trial_rows[0] = TRIAL_ROWS
        # A restarted bank is surprised by nearly every row: no test until it knows a few.
        bank.hold_rows[0] = HOLD_ROWS + 1
        bank.suspect_row[0] = bank.n_rows[0] - 1
        inlier, outlier = value + LOG_INLIER, background + LOG_OUTLIER
        bank.log_odds[0] = prior_log_odds(bank, inlier, outlier, background)
        for j in range(len(log_prior)):
            bank.log_weights[1 - a, j] = log_prior[j]
        # The previous bank does not learn a row that it takes for an outlier.
        if inlier < outlier:
            return LEARN | CHANGE
        reweigh(bank.log_weights[a], log_prior, scores[a])
        return LEARN | CHANGE | LEARN_PREVIOUS
    reweigh(bank.log_weights[a], log_prior, scores[a])
    return LEARN


@inner
def continue_trial(bank, scores, background, value):
    """Add a row to the log-odds of the previous bank against the new one, and end the trial when they decide.

    Each bank may call the row an outlier; the previous one does not learn it then.
    """
    a = bank.active[0]
    s = 1 - a
    log_prior, log_weights = bank.log_prior, bank.log_weights
    inlier = log_mixture(log_weights[s], scores[s]) + LOG_INLIER
    outlier = background + LOG_OUTLIER
    # Both banks may explain the row as an outlier, so that one wild value does not decide the trial.
    bank.log_odds[0] += log_add(inlier, outlier) - log_add(value + LOG_INLIER, outlier)
    bank.trial_rows[0] -= 1
    over = bank.trial_rows[0] == 0
    revert = bank.log_odds[0] > REVERT or (over and bank.log_odds[0] > 0.0)
    accept = not revert and (bank.log_odds[0] < ACCEPT or over)
    actions = 0
    if revert:
        bank.active[0], bank.trial_rows[0], bank.hold_rows[0] = s, 0, 0
    else:
        reweigh(log_weights[a], log_prior, scores[a])
        actions = LEARN
    if accept:
        bank.changes[bank.n_changes[0] % len(bank.changes)] = bank.suspect_row[0]
        bank.n_changes[0] += 1
        bank.trial_rows[0] = 0
    # While the trial goes on, the previous bank stays ready to take over: it
    # learns what it does not take for an outlier.
    elif inlier >= outlier:
        reweigh(log_weights[s], log_prior, scores[s])
        actions |= LEARN if revert else LEARN_PREVIOUS
    return actions


@inner
def reseed(log_weights, horizons, successors):
    """Members of longer horizons that are far behind the best start again from it.

    Marks them in `successors`, sets their weights, and returns the index of the best, whose model they copy.
    """
    k = best(log_weights)
    for j in range(len(horizons)):
        successors[j] = horizons[j] > horizons[k] and log_weights[k] - log_weights[j] > RESEED_BEHIND
        if successors[j]:
            log_weights[j] = log_weights[k] - RESEED_AT
    return k


@inner
def best_member(bank):
    """Slot and member that answer: the previous bank while the log-odds are not against it, its best member there."""
    slot = bank.active[0]
    if bank.trial_rows[0] > 0 and bank.log_odds[0] >= 0.0:
        slot = 1 - slot
    return slot, best(bank.log_weights[slot])
