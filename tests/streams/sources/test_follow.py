"""Files that are followed as `tail -F` does: rotated, truncated and written anew, and it is said."""

import os
import threading
import time

import numpy as np
import pytest

from everlearn.streams.sources import files
from everlearn.streams.sources.opening import open_source


class Reader:
    """Reads a file that is followed, in a thread of its own."""

    def __init__(self, *paths):
        self.source = open_source(list(paths), follow=True)
        self.rows, self.notes, self.positions = [], [], []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for batch in self.source.batches():
            self.notes += batch.notes
            self.rows += batch.X[:, 0].tolist()
            if batch.position is not None:
                self.positions.append(batch.position)

    def wait_for(self, n, seconds=10.0):
        """The rows, once there are n of them or time is up; a little later, in case there are more."""
        end = time.monotonic() + seconds
        while len(self.rows) < n and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        return self.rows


@pytest.fixture(autouse=True)
def short_polls(monkeypatch):
    monkeypatch.setattr(files, "POLL_SECONDS", 0.02)


def text(start, stop):
    return "".join(f"{i},{i % 7}\n" for i in range(start, stop))


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("a,b\n" + text(0, 1000))
    return path


def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(log, tmp_path):
    reader = Reader(str(log))
    reader.wait_for(1000)
    os.rename(log, tmp_path / "log.csv.1")
    with (tmp_path / "log.csv.1").open("a") as old:  # the writer still has the old file open
        old.write(text(1000, 1200))
    time.sleep(0.1)  # there is no file of the name for a while
    log.write_text("a,b\n" + text(5000, 7000))
    assert reader.wait_for(3200) == [*range(1200), *range(5000, 7000)]
    assert reader.notes == [f"{log} was replaced by another file; that is read from its beginning."]


def test_a_file_whose_name_speaks_of_truncation_is_rotated_as_any_other(tmp_path):
    log = tmp_path / "truncated.csv"
    log.write_text("a,b\n" + text(0, 1000))
    reader = Reader(str(log))
    reader.wait_for(1000)
    with log.open("a") as old:
        os.rename(log, tmp_path / "old.csv")
        (tmp_path / "new.csv").write_text("a,b\n" + text(5000, 6000))
        old.write(text(1000, 1200))
        old.flush()
        os.rename(tmp_path / "new.csv", log)
    assert reader.wait_for(2200) == [*range(1200), *range(5000, 6000)]


def test_a_file_that_is_replaced_at_once_by_a_longer_one(log, tmp_path):
    reader = Reader(str(log))
    reader.wait_for(1000)
    new = tmp_path / "new"
    new.write_text("a,b\n" + text(5000, 7000))
    os.replace(new, log)
    assert reader.wait_for(3000) == [*range(1000), *range(5000, 7000)]
    assert len(reader.notes) == 1


def test_a_truncated_file_is_read_again_from_its_beginning(log):
    reader = Reader(str(log))
    reader.wait_for(1000)
    with log.open("r+") as file:
        file.truncate(0)
        file.write("a,b\n" + text(5000, 5100))
    assert reader.wait_for(1100) == [*range(1000), *range(5000, 5100)]
    assert "was truncated" in reader.notes[0]


def test_a_file_that_was_written_anew_and_longer_between_two_looks(log, monkeypatch):
    monkeypatch.setattr(files, "POLL_SECONDS", 0.5)
    reader = Reader(str(log))
    reader.wait_for(1000)
    with log.open("r+") as file:
        file.truncate(0)
        file.write("a,b\n" + text(5000, 7000))
    assert reader.wait_for(3000) == [*range(1000), *range(5000, 7000)]
    assert "truncated and written anew" in reader.notes[0]


def test_a_file_with_the_same_header_whose_rows_differ_far_behind_its_beginning(log, monkeypatch):
    """The bytes before the place of reading tell it apart, when the first 4096 are the same."""
    monkeypatch.setattr(files, "POLL_SECONDS", 0.5)
    reader = Reader(str(log))
    reader.wait_for(1000)
    same = "a,b\n" + text(0, 800)
    assert len(same) > 4096
    with log.open("r+") as file:
        file.truncate(0)
        file.write(same + text(9000, 11000))
    assert reader.wait_for(3800)[1000:] == [*range(800), *range(9000, 11000)]
    assert len(reader.notes) == 1


def test_a_file_that_grows_is_the_same_file(log):
    reader = Reader(str(log))
    reader.wait_for(1000)
    for start in range(1000, 1500, 100):
        with log.open("a") as file:
            file.write(text(start, start + 100))
        time.sleep(0.03)
    assert reader.wait_for(1500) == [*range(1500)]
    assert reader.notes == []


def test_positions_behind_a_replacement_belong_to_the_new_file(log):
    reader = Reader(str(log))
    reader.wait_for(1000)
    new = log.with_suffix(".new")
    new.write_text("a,b\n" + text(5000, 6000))
    os.replace(new, log)
    reader.wait_for(2000)
    position = reader.positions[-1]  # before there is more: the reader goes on by itself
    with log.open("a") as file:
        file.write(text(6000, 6010))
    with open_source(str(log)) as again:
        rest = np.concatenate([batch.X[:, 0] for batch in again.batches(position)])
    assert rest.tolist() == [*range(6000, 6010)]
