"""The anomaly detector beside its peers: ranking, delay, false alarms, blame and speed, stream by stream.

    python benchmarks/anomaly.py [--quick] [--only PACKAGE ...] [--groups GROUP ...] [--no-page] [--keep]

`--only` measures the contenders of these packages (as `everlearn river pysad scikit-learn`) and keeps the figures of
the others as they are in `results/anomaly_streams.json`, which says of each when it was measured and with what;
`--groups` measures these groups of streams alone, and keeps the figures of the others.
"""

from __future__ import annotations

import fcntl
import json
import time

import numpy as np
from _keel import PACKAGE, keel
from _page import RESULTS, origin, parser, write_page

import everlearn
from everlearn.anomaly.ask import view_parts
from everlearn.anomaly.state import VIEWS
from everlearn.datasets.demo import REGIMES, demo_stream, join
from everlearn.experiments.peers import context_for
from everlearn.experiments.peers.adapter import OURS
from everlearn.experiments.peers.anomaly import UNJUDGED, affordable, average_precision, judge, roc_auc
from everlearn.experiments.peers.anomaly_clean import CLEAN, injected
from everlearn.experiments.peers.anomaly_streams import GROUPS
from everlearn.experiments.peers.data import Absent
from everlearn.experiments.peers.running import tasks

STREAMS = RESULTS / "anomaly_streams.json"
SHUTTLE_ROWS = 15_000  # some peers take minutes for all of its rows; peers.md has those that do not, on all of them
# Of our own models the detector and the mixture alone: the others are not meant for this.
OUR_NAMES = ("AnomalyDetector", "IncrementalGaussianMixture")
TITLES = {
    "shuttle": f"Shuttle, the first {SHUTTLE_ROWS:,} rows", "nab": "NAB, realKnownCause",
    "nab_others": "NAB, artificialWithAnomaly, realAWSCloudwatch, realTraffic", "rare": "Rare classes",
    "synthetic": "Synthetic faults", "aside": "Streams kept aside", "keel": "Rare classes of KEEL's tables, kept aside",
}  # fmt: skip
STREAMS_OF = GROUPS | {"keel": keel}
KEPT_ASIDE = ("aside", "keel")
RATES = (1e-2, 1e-3, 1e-4)


# -- measuring ---------------------------------------------------------------------------------------


def contenders(packages):
    """Detectors of the packages that are installed."""
    found = [task.contender for task in tasks(["anomaly", *packages])]
    chosen = [one for one in found if one.installed and (one.package != OURS or one.name in OUR_NAMES)]
    return [one for one in chosen if not packages or one.package in (*packages, "sklearn", OURS)]


def streams(group, context):
    """Streams of a group, Shuttle cut short; none where the data are missing."""
    try:
        for stream in STREAMS_OF[group](context):
            yield (
                stream._replace(X=stream.X[:SHUTTLE_ROWS], y=stream.y[:SHUTTLE_ROWS]) if group == "shuttle" else stream
            )
    except Absent as absent:
        print(f"{group}: {absent}", flush=True)


def figures(contender, context, groups):
    """Of each group and stream: ROC-AUC, average precision, delays, alarms over those asked for, rows, seconds."""
    found = {}
    for group in groups:
        for stream in streams(group, context):
            if affordable(contender, stream):
                found.setdefault(group, {})[stream.name] = figure(contender, stream)
    return found


def figure(contender, stream):
    """What one detector made of one stream; a failure in words."""
    began = time.process_time()
    try:
        one = judge(contender, stream)
    except Exception as error:  # whatever a peer raises, the others are still measured
        return {"failed": f"{type(error).__name__}: {str(error)[:120]}"}
    seconds = time.process_time() - began
    print(f"{stream.name}: {contender.title} {one.roc:.3f} {one.ap:.3f} {seconds:.1f} s", flush=True)
    return {
        "roc": one.roc, "ap": one.ap, "delay": float(np.median(one.delays)) if one.delays else None,
        "false_alarms": one.false_alarms, "rows": one.rows, "seconds": seconds,
    }  # fmt: skip


def store(title, record):
    """Put the figures of a contender into the file; two runs may do so at the same time."""
    STREAMS.touch()
    with STREAMS.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        every = json.loads(file.read() or "{}")
        every[title] = record
        file.seek(0)
        file.truncate()
        file.write(json.dumps(every, indent=1, sort_keys=True) + "\n")
    return every


# -- the page ----------------------------------------------------------------------------------------


def table(heading, columns, rows):
    """Lines of a Markdown table under its heading."""
    lines = [f"## {heading}", "", f"| {' | '.join(columns)} |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def of_streams(every, group, name):
    """Names of the contenders that took every stream of a group, and their figures (streams, contenders)."""
    full = {title: record["groups"].get(group, {}) for title, record in every.items()}
    longest = max((len(found) for found in full.values()), default=0)
    titles = [title for title, found in full.items() if found and len(found) == longest]
    names = list(full[titles[0]]) if titles else []
    values = [[full[title][stream].get(name) for title in titles] for stream in names]
    return titles, np.array(values, dtype=float)


def ranks(values):
    """Ranks of the contenders on each stream, 1 is the best; equal figures share their mean rank, a failure is last."""
    from scipy.stats import rankdata

    return rankdata(-np.nan_to_num(np.round(values, 4), nan=-1.0), axis=1)


def mean(values):
    """The mean of a contender's figures, with the number of its streams where it failed on others."""
    n = np.count_nonzero(~np.isnan(values))
    return f"{np.nanmean(values):.3f}" + (f" on {n} of {len(values)}" if n < len(values) else "")


def ranking(every, heading, groups):
    """A table of the means over the streams of some groups, in the order of the mean rank by ROC-AUC."""
    blocks = [of_streams(every, group, "roc") for group in groups if of_streams(every, group, "roc")[0]]
    titles = [title for title in blocks[0][0] if all(title in other for other, _ in blocks)] if blocks else []
    roc, ap = (_stacked(every, groups, name, titles) for name in ("roc", "ap"))
    rows = []
    for j, title in enumerate(titles):
        rank = ranks(roc)[:, j].mean(), ranks(ap)[:, j].mean()
        rows.append((rank[0], [title, mean(roc[:, j]), mean(ap[:, j]), f"{rank[0]:.2f}", f"{rank[1]:.2f}"]))
    columns = [f"{len(roc)} streams", "ROC-AUC", "average precision", "mean rank, ROC-AUC", "mean rank, AP"]
    return table(heading, columns, [row for _, row in sorted(rows)])


def _stacked(every, groups, name, titles):
    parts = []
    for group in groups:
        own, values = of_streams(every, group, name)
        if own:
            parts.append(values[:, [own.index(title) for title in titles]])
    return np.concatenate(parts) if parts else np.empty((0, 0))


def short_streams(every, title):
    """Ours and a slow peer on the streams that the peer takes."""
    ours = next(name for name in every if name.endswith("AnomalyDetector"))
    rows = []
    for one in (ours, title):
        pairs = [(group, stream) for group, found in every[title]["groups"].items() for stream in found]
        found = [every[one]["groups"][group][stream] for group, stream in pairs]
        means = [np.nanmean([figure.get(name, np.nan) for figure in found]) for name in ("roc", "ap")]
        rows.append([one, len(pairs), f"{means[0]:.3f}", f"{means[1]:.3f}"])
    return table(f"Beside {title}", ["", "streams", "ROC-AUC", "average precision"], rows)


def practice(every):
    """Delay, false alarms and speed."""
    rows = []
    for title, record in every.items():
        own = [one for found in record["groups"].values() for one in found.values() if "roc" in one]
        faults = [one for one in record["groups"].get("synthetic", {}).values() if "roc" in one]
        delays = [one["delay"] for one in faults if one["delay"] is not None]
        alarms = [one["false_alarms"] for one in faults if one["false_alarms"] == one["false_alarms"]]
        speed = sum(one["rows"] for one in own) / sum(one["seconds"] for one in own)
        rows.append([title, f"{np.mean(delays):.0f}" if delays else "", f"{np.mean(alarms):.2f}" if alarms else "",
                     f"{speed:,.0f}"])  # fmt: skip
    columns = ["", "delay, rows", "alarms on unlabelled rows / asked for (1 in 1,000)", "rows a second of CPU"]
    return table("Delay, false alarms, speed", columns, rows)


class Viewed(everlearn.AnomalyDetector):
    """A detector that keeps what its views said of the rows of the last call."""

    def _record(self, info, *rest, **settings):
        super()._record(info, *rest, **settings)
        self.views_ = view_parts(info.parts)


def views(context):
    """Each view alone beside the combination, means over the streams of a group; rows are learned as by all views."""
    names = ("combination", *VIEWS)
    columns, tables = ["", *names, "combination / best view"], {"ROC-AUC": [], "average precision": []}
    for group in STREAMS_OF:
        found = [figures_of_views(stream) for stream in streams(group, context)]
        if not found:
            continue
        for measure, values in zip(tables, np.nanmean(found, axis=0).T, strict=True):
            cells = [f"{value:.3f}" for value in (*values, values[0] / values[1:].max())]
            tables[measure].append([f"{TITLES[group]} ({len(found)})", *cells])
            print(measure, tables[measure][-1], flush=True)
    return [line for name, rows in tables.items() for line in table(f"Each view alone, {name}", columns, rows)]


def figures_of_views(stream):
    """ROC-AUC and average precision (1 + views, 2) of the combination and of each view of one stream."""
    detector = Viewed()
    scores = [-detector.prequential(stream.X), *detector.views_.values()]
    start = int(min(UNJUDGED, 0.15 * len(stream.X)))
    return [[roc_auc(stream.y[start:], s[start:]), average_precision(stream.y[start:], s[start:])] for s in scores]


def calibration(seeds, rows):
    """Alarms on clean streams over the number asked for, summed over seeds; the first fifth is not judged."""
    lines = []
    for name, make in CLEAN.items():
        log_p = [-np.inf * np.ones(0)]
        for seed in range(seeds):
            X = make(np.random.default_rng([seed, 31]), rows)
            log_p.append(everlearn.AnomalyDetector().prequential(X)[rows // 5 :])
        found = np.concatenate(log_p)
        ratios = [(found < np.log(rate)).mean() / rate for rate in RATES]
        lines.append([name, f"{len(found):,}", *(f"{ratio:.2f}" for ratio in ratios)])
        print(lines[-1], flush=True)
    columns = ["clean stream", "rows judged", "asked 1 in 100", "1 in 1,000", "1 in 10,000"]
    return table("Alarms found over alarms asked for", columns, lines)


def demonstration(seeds, rows):
    """Alarms of the demonstration stream: on faults, and on other rows over those asked for; the worn bearing apart."""
    lines = []
    for seed in range(seeds):
        stream = join(list(demo_stream(rows, seed=seed)))
        detector = everlearn.AnomalyDetector(grace_period=1000)
        alarms = detector.prequential(stream.X) < detector.offset_
        judged = (np.arange(rows) >= rows // 6) & (stream.regime < REGIMES.index("worn"))
        usual, faulty = judged & (stream.fault == 0), judged & (stream.fault > 0)
        lines.append([seed, np.count_nonzero(faulty), alarms[faulty].mean(), alarms[usual].mean() / 1e-3])
        print(lines[-1], flush=True)
    lines.append(["mean", "", *np.mean([line[2:] for line in lines], axis=0)])
    columns = ["seed", "rows of faults", "found", "alarms on usual rows over those asked for (1 in 1,000)"]
    title = f"The demonstration stream, {rows:,} rows"
    return table(title, columns, [[seed, n, f"{found:.3f}", f"{false:.2f}"] for seed, n, found, false in lines])


def blame(seeds):
    """How often the column that a value was put into is the one to blame."""
    lines = []
    for name, make in injected().items():
        right = np.concatenate([make(seed) for seed in range(seeds)])
        lines.append([name, len(right), f"{right.mean():.3f}"])
        print(lines[-1], flush=True)
    return table("The injected column is blamed first", ["rows", "cases", "share"], lines)


def speed(rows):
    """Rows a second of CPU time at 8 columns, in batches of 1,000 and one at a time, and bytes of the state."""
    from everlearn.experiments.peers.anomaly_streams import machine

    def bytes_of(part):
        return part.nbytes if isinstance(part, np.ndarray) else sum(map(bytes_of, part))

    X, _ = machine("shift", 8)(np.random.default_rng(0), rows)
    everlearn.AnomalyDetector().prequential(X[:1000])
    lines = []
    for name, size in (("batches of 1,000", 1000), ("one row at a time", 1)):
        detector, began = everlearn.AnomalyDetector(), time.process_time()
        for start in range(0, rows, size):
            detector.prequential(X[start : start + size])
        rate = rows / (time.process_time() - began)
        lines.append([name, f"{rows:,}", f"{rate:,.0f}", f"{bytes_of(detector._state_):,}"])
    head = ["", "rows", "rows a second of CPU", "bytes of the state, beside the mixture"]
    return table("Speed at 8 columns, the warm-up included", head, lines)


def main():
    """Measure what was asked for, and make the page of all figures there are."""
    options = parser(__doc__)
    options.add_argument("--only", nargs="+", default=(), metavar="PACKAGE", help="measure these packages alone")
    options.add_argument("--groups", nargs="+", default=tuple(STREAMS_OF), choices=STREAMS_OF, help="and these streams")
    options.add_argument("--no-page", action="store_true", help="store the figures of the contenders and stop")
    options.add_argument("--keep", action="store_true", help="keep the figures of all contenders; make the page anew")
    given = options.parse_args()
    context = context_for(quick=given.quick)._replace(seeds=1)
    every = json.loads(STREAMS.read_text()) if STREAMS.exists() and not given.quick else {}
    for contender in [] if given.keep else contenders(given.only):
        if given.only and contender.package not in (*given.only, *("sklearn",) * ("scikit-learn" in given.only)):
            continue
        found, made = figures(contender, context, given.groups), origin()
        before = every.get(contender.title, {"groups": {}, "commits": {}})
        groups, commits = before["groups"] | found, before["commits"] | dict.fromkeys(found, made["commit"])
        record = {"settings": contender.settings, "origin": made, "groups": groups, "commits": commits}
        every = store(contender.title, record) if not given.quick else every | {contender.title: record}
    if given.no_page:
        return
    write_page("anomaly", "\n".join(body(every, given.quick)), quick=given.quick)


def body(every, quick):
    """The page."""
    slow = [title for title in every if title.endswith(("xStream", "RobustRandomCutForest"))]
    seen = [group for group in STREAMS_OF if group not in KEPT_ASIDE]
    lines = [
        "# Anomalies, stream by stream", "",
        "Each row is scored, then learned; the first 500 (at most 15 %) are not judged. Contenders and streams: "
        f"`everlearn.experiments.peers`, and of KEEL's tables ({PACKAGE}) the least frequent class. Nothing was chosen "
        "on the streams kept aside.", "",
    ]  # fmt: skip
    lines += ranking(every, "All streams but those kept aside", seen)
    for group in STREAMS_OF:
        lines += ranking(every, TITLES[group], [group])
    for title in slow:
        lines += short_streams(every, title)
    lines += practice(every)
    lines += views(context_for(quick=quick)._replace(seeds=1))
    lines += calibration(1 if quick else 10, 3000 if quick else 50_000)
    lines += demonstration(*((1, 3000) if quick else (12, 12_000)))
    lines += blame(1 if quick else 10)
    lines += speed(3000 if quick else 50_000)
    return [*lines, "Measured at: " + ", ".join(map(measured_at, every, every.values())) + "."]


def measured_at(title, record):
    """Name of a contender, and the commits at which it was measured."""
    return f"{title} {' and '.join(sorted({(commit or '?')[:12] for commit in record['commits'].values()}))}"


if __name__ == "__main__":
    main()
