"""everlearn beside river, scikit-learn, gmr and pomegranate: the same rows, one run.

    python benchmarks/peers.py [--quick] [--rows N] [--only NAME ...] [--out benchmarks/results/peers.md]

Needs the extra `peers`; pomegranate is measured where it is installed. The same as `everlearn bench --out FILE`.
"""

import argparse
import shlex
import sys
from pathlib import Path

from everlearn.experiments.peers import Report, compare, context_for, made_with, tasks, write
from everlearn.experiments.peers.report import summary_table

RESULTS = Path(__file__).parent / "results" / "peers.md"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter streams and fewer of them")
    parser.add_argument("--rows", type=int, help="most rows of a stream")
    parser.add_argument("--only", nargs="+", default=(), help="columns and packages")
    parser.add_argument("--out", type=Path, default=RESULTS, help="a file that ends in .md or .html")
    arguments = parser.parse_args()
    todo, made = tasks(arguments.only), made_with()

    def progress(done, task):
        print(f"{done + 1}/{len(todo)} {task.column.NAME}: {task.contender.title}", flush=True)

    tables = compare(todo, context_for(quick=arguments.quick, rows=arguments.rows), progress)
    report = Report(tables, shlex.join(["python", "benchmarks/peers.py", *sys.argv[1:]]), made)
    write(report, arguments.out)
    print(f"\n{summary_table(report).markdown()}\n{report.verdict()}")


if __name__ == "__main__":
    main()
