"""The anomaly detector beside its peers, stream by stream: a page and a JSON file, both whole.

    python benchmarks/anomaly.py [--quick] [--rows N] [--groups NAME ...] [--out benchmarks/results/anomaly.md]

The same figures as means over the groups: `everlearn bench --only anomaly`. Streams that are kept aside are the group
`aside`.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

import numpy as np

from everlearn.experiments.peers import context_for, made_with
from everlearn.experiments.peers.anomaly import judge
from everlearn.experiments.peers.anomaly_streams import GROUPS
from everlearn.experiments.peers.data import Absent
from everlearn.experiments.peers.running import tasks

RESULTS = Path(__file__).parent / "results" / "anomaly.md"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter streams and fewer of them")
    parser.add_argument("--rows", type=int, help="most rows of a stream")
    parser.add_argument("--groups", nargs="+", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--only", nargs="+", default=(), help="packages")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    made = made_with()
    contenders = [task.contender for task in tasks(["anomaly", *arguments.only]) if task.contender.installed]
    context = context_for(quick=arguments.quick, rows=arguments.rows)
    found = {group: figures(GROUPS[group], context, contenders) for group in arguments.groups}
    command = shlex.join(["python", "benchmarks/anomaly.py", *sys.argv[1:]])
    arguments.out.write_text(page(found, [contender.title for contender in contenders], command, made))
    arguments.out.with_suffix(".json").write_text(json.dumps({"command": command, "figures": found}, indent=1))


def figures(streams, context, contenders):
    """ROC-AUC, average precision and rows a second of each contender on each stream of a group; failures as words."""
    found = {}
    try:
        for stream in streams(context):
            found[stream.name] = {contender.title: figure(contender, stream) for contender in contenders}
    except Absent as absent:
        return {"absent": str(absent)}
    return found


def figure(contender, stream):
    began = time.perf_counter()
    try:
        one = judge(contender, stream)
    except Exception as error:  # whatever a peer raises, the others are still measured
        return {"failed": f"{type(error).__name__}: {str(error)[:120]}"}
    print(
        f"{stream.name}: {contender.title} {one.roc:.3f} {one.ap:.3f} {time.perf_counter() - began:.1f} s", flush=True
    )
    return {"roc": one.roc, "ap": one.ap, "rows_per_second": one.rows / one.seconds}


def page(found, titles, command, made):
    """One table a group: mean ROC-AUC and average precision, and the mean rank by ROC-AUC."""
    lines = ["# Anomalies, stream by stream", "", f"`{command}`", "", f"{made}", ""]
    for group, streams in found.items():
        lines += [
            f"## {group}",
            "",
            "| | streams | ROC-AUC | average precision | mean rank |",
            "|---|---:|---:|---:|---:|",
        ]
        if "absent" in streams:
            lines += [f"| {streams['absent']} | | | | |", ""]
            continue
        table = np.array([[one.get(title, {}).get("roc", np.nan) for title in titles] for one in streams.values()])
        precision = np.array([[one.get(title, {}).get("ap", np.nan) for title in titles] for one in streams.values()])
        ranks = (-np.nan_to_num(table, nan=-1.0)).argsort(axis=1).argsort(axis=1) + 1.0
        for j, title in enumerate(titles):
            lines += [f"| {title} | {(~np.isnan(table[:, j])).sum()} | {np.nanmean(table[:, j]):.3f} | "
                      f"{np.nanmean(precision[:, j]):.3f} | {ranks[:, j].mean():.2f} |"]  # fmt: skip
        lines += [""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
