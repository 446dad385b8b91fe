"""A file is there whole, or as it was before, and nothing else is left in its folder."""

import os
import stat
import sys

import pytest

from everlearn.persistence import atomic_write
from everlearn.persistence.atomic_write import write_whole

windows = pytest.mark.skipif(sys.platform == "win32", reason="links and modes of POSIX")


def test_text_and_bytes_are_written(tmp_path):
    write_whole(tmp_path / "a", "ü", "report")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xbc"
    write_whole(tmp_path / "a", b"\0\1", "model")
    assert (tmp_path / "a").read_bytes() == b"\0\1"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "ctrl-c"])
@pytest.mark.parametrize("existed", [True, False])
def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch, step, error, existed):
    def fail(*args):
        raise error

    if existed:
        (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(atomic_write.os, step, fail)
    with pytest.raises(type(error)) as raised:
        write_whole(tmp_path / "a", b"new", "model")
    assert os.listdir(tmp_path) == (["a"] if existed else [])
    assert not existed or (tmp_path / "a").read_bytes() == b"old"
    if isinstance(error, OSError):
        told = "The file that was there is intact." if existed else "Nothing was written."
        assert raised.value.errno == 28
        assert f"The model could not be saved: No space left on device. {told}" in str(raised.value)


def test_the_data_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """After a power failure a name must not stand for an empty file; last the folder is flushed."""
    calls, real = [], {name: getattr(os, name) for name in ("fsync", "replace")}

    def noted(name):
        def call(*args):
            kind = stat.S_ISDIR(os.fstat(args[0]).st_mode) if name == "fsync" else None
            calls.append("folder" if kind else name)
            return real[name](*args)

        return call

    for name in real:
        monkeypatch.setattr(atomic_write.os, name, noted(name))
    write_whole(tmp_path / "a", b"data", "model")
    assert calls[:2] == ["fsync", "replace"]
    assert calls[2:] in (["folder"], [])  # Windows opens no folders


@windows
def test_permissions_stay_and_a_draft_has_them_from_its_first_byte(tmp_path, monkeypatch):
    target = tmp_path / "a"
    target.write_bytes(b"secret")
    target.chmod(0o600)
    modes, real = [], os.fsync
    draft = lambda: [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]  # noqa: E731
    monkeypatch.setattr(
        atomic_write.os, "fsync", lambda fd: (modes.extend(path.stat().st_mode & 0o777 for path in draft()), real(fd))
    )
    write_whole(target, b"more", "model")
    assert modes == [0o600]
    assert target.stat().st_mode & 0o777 == 0o600


@windows
def test_a_link_is_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    real = tmp_path / "folder" / "real"
    real.write_bytes(b"old")
    (tmp_path / "link").symlink_to(real)
    write_whole(tmp_path / "link", b"new", "model")
    assert (tmp_path / "link").is_symlink()
    assert real.read_bytes() == b"new"


@windows
def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError, match="something else than a file"):
            write_whole(path, b"data", "model")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(OSError, match=r"The report could not be saved: there is no folder .* create it first"):
        write_whole(tmp_path / "none" / "a", b"data", "report")
