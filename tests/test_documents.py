"""Every figure of README and docs is that of the record that a command wrote."""

import importlib
import json
import re
import shutil

import pytest

from everlearn.anomaly.estimator import SCORES
from everlearn.anomaly.state import STATISTICS
from everlearn.figmn.cost_model import block_rows
from everlearn.low_rank import core as low_rank
from everlearn.mixture.estimator import MAX_COMPONENTS, MAX_NUMBERS
from everlearn.mixture.keep import schedule
from everlearn.monitoring.event_log import MAX_EVENTS

# A number with a unit: a result, unless it stands in a block that a command fills.
MEASURED = re.compile(
    r"[^\w.`](\d[\d,.]*)\s?"
    r"(?:s|ms|µs|MiB|KiB|kB|GB|MB|TB|%|times|nats|rows per second|microseconds|seconds|hours|minutes|percent)\b"
)


@pytest.fixture
def documents(repository, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("_documents")


def outside_blocks(documents, text):
    return re.sub(r"```.*?```", "", documents.BLOCK.sub("", text), flags=re.DOTALL)


def test_documents_show_what_the_records_say(documents, repository):
    """After pages were made by hand: python benchmarks --documents"""
    shown = []
    for name in documents.DOCUMENTS:
        text = (repository / name).read_text(encoding="utf-8")
        assert documents.filled(text) == text, name
        shown += [found[2] for found in documents.BLOCK.finditer(text)]
    assert sorted(shown) == sorted(documents.BLOCKS)


def test_another_record_gives_another_document(documents, repository, tmp_path, monkeypatch):
    shutil.copytree(repository / "benchmarks" / "results", tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(documents._page, "RESULTS", tmp_path)
    record = json.loads((tmp_path / "one_pass.json").read_text(encoding="utf-8"))
    record["tables"][0]["rows"][-1] = ["mean", "12.3", "**45.6**"]
    (tmp_path / "one_pass.json").write_text(json.dumps(record), encoding="utf-8")
    text = (repository / "README.md").read_text(encoding="utf-8")
    assert "accuracy, percent; random forest | 12.3 | **45.6** |" in documents.filled(text)


def test_nothing_measured_is_typed(documents, repository):
    printed = (repository / "docs" / "reproduction.json").read_text(encoding="utf-8")
    for name in (*documents.DOCUMENTS, "docs/performance.md"):
        text = outside_blocks(documents, (repository / name).read_text(encoding="utf-8"))
        # What a paper prints is told as such; the record of the reproduction has it, too.
        typed = [number for number in MEASURED.findall(text) if f'"printed": "{number}"' not in printed]
        assert typed == [], name


def test_limits_in_the_page_on_cost_are_those_of_the_code(documents, repository):
    text = (repository / "docs" / "cost.md").read_text(encoding="utf-8")
    assert f'"auto" is {schedule.MIN_RESERVOIR} to {schedule.MAX_RESERVOIR} rows' in text
    sample = f"as many rows as fit {low_rank.RESERVOIR_NUMBERS * 4 // 2**20} MiB, {low_rank.MOST_ROWS} at most, but "
    sample += f"{low_rank.ENOUGH_ROWS} unless they take more than {low_rank.MAX_RESERVOIR_NUMBERS * 4 // 2**20} MiB"
    assert sample in text
    assert f"| events | 3 × {MAX_EVENTS} |" in text
    assert f"takes D + {len(STATISTICS) + 1}; `contamination` takes {SCORES:,} |" in text
    assert f'`max_components="auto"` is {MAX_COMPONENTS} for the mixture' in text
    assert f"would fill {MAX_NUMBERS * 8 // 2**20} MiB" in text
    assert f"grown by {100 * (schedule.ASK_AGAIN - 1):.0f} % since the last search" in text
    longest = max(block_rows(D) for D in range(1, 5000))
    assert f"blocks of b ≤ {longest} rows" in text
    # Powers and factors of formulas, and these: there is no other number in it.
    known = {"1000", "2800", "64", "128", "5", "256", "8000", "2000", "32"}
    known |= {"120", "9", "200", "500", "19", "10"}  # of a detector, which tests/anomaly/test_estimator.py counts
    assert {n for n in re.findall(r"\d+", outside_blocks(documents, text)) if int(n) > 8} <= known


def test_the_counts_follow_the_rates(documents, monkeypatch):
    rows = [["mixture", "4", "9", "100,000", "50", "64", "10"], ["mixture", "100", "9", "50,000", "90", "1,024", "200"]]
    monkeypatch.setattr(documents, "tables", lambda page: [{"rows": rows}])
    billion, million = documents.billion(), documents.million()
    assert "= 20,000 s: 5.6 hours of one core, 3.3 minutes of a hundred" in billion
    assert "are 40 MB per second and core: a hundred cores need 4.0 GB per second" in billion
    assert "1,000 × 1,024 KiB of models and 200 s of one core" in billion
    assert "5.6 hours of a core at an assumed 0.04 USD: 0.22 USD" in billion
    assert "10⁶ × 64 KiB = 66 GB; once a day 0.76 MB per second" in million
    assert "10⁶ × 10 ms = 10,000 s: 2.8 hours of one core, 1.7 minutes of a hundred" in million
    assert "2.8 TB per day, 42 times the models" in million


def test_a_cluster_is_praised_only_where_it_is_faster_than_its_cores(documents, monkeypatch):
    def told(times):
        rows = [["one", "9", "1", "1", "", "-1"], ["two", "8", "1", f"**{times}**", "", "-1"]]
        table = {"heading": "Rows", "columns": ["", "seconds", "rate", "times", "memory", "score"], "rows": rows}
        monkeypatch.setattr(documents, "tables", lambda page: [table])
        return documents.cluster()

    assert "2.8 times as fast, and not only because of the second core" in told("2.82")
    assert "times as fast" not in told("1.90")
