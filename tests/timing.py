"""Costs of calls as ratios, measured turn and turn about: a machine that slows down slows both sides."""

import time
from statistics import median


def seconds_each(call, items):
    """Processor seconds of one call, on average over the items."""
    start = time.process_time()
    for item in items:
        call(item)
    return (time.process_time() - start) / len(items)


def cost_ratio(call, unit, items, unit_items=None, repeats=9):
    """What `call` costs in units of `unit`: the median over pairs of stretches, one after the other."""
    unit_items = items if unit_items is None else unit_items
    return median(seconds_each(call, items) / seconds_each(unit, unit_items) for _ in range(repeats))
