"""everlearn beside river, scikit-learn, gmr and pomegranate: the same rows, one run.

    python benchmarks/peers.py [--quick] [--rows N] [--only NAME ...]

Needs the extra `peers`; pomegranate is measured where it is installed. The same as `everlearn bench --out FILE`.
"""

import shlex
import sys

from _page import parser, write_page

from everlearn.experiments.peers import Report, compare, context_for, made_with, tasks
from everlearn.experiments.peers.report import markdown


def main():
    made = parser(__doc__)
    made.add_argument("--rows", type=int, help="most rows of a stream")
    made.add_argument("--only", nargs="+", default=(), help="columns and packages; no page is written")
    arguments = made.parse_args()
    todo, origin = tasks(arguments.only, quick=arguments.quick), made_with()

    def progress(done, task):
        print(f"{done + 1}/{len(todo)} {task.column.NAME}: {task.contender.title}", file=sys.stderr, flush=True)

    tables = compare(todo, context_for(quick=arguments.quick, rows=arguments.rows), progress)
    report = Report(tables, shlex.join(["python", "benchmarks/peers.py", *sys.argv[1:]]), origin)
    write_page("peers", markdown(report), quick=bool(arguments.quick or arguments.only or arguments.rows))


if __name__ == "__main__":
    main()
