"""Files that are written whole or not at all: models, and the reports made of them."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path


def write_whole(path: str | os.PathLike[str], data: bytes | str, what: str) -> None:
    """Write a file, all of it or nothing.

    It is written beside its final place, flushed to the disk and renamed: after a failure the file that was
    there before is intact and nothing else is left behind.

    Parameters
    ----------
    path : path-like
        The file; an existing one is replaced, keeping its permissions. A link is followed.
    data : bytes or str
        Its contents; text is written as UTF-8.
    what : str
        What it is, for the message of a failure: "model", "report".

    Raises
    ------
    OSError
        The file could not be written.
    """
    # The draft has to lie in the folder of the final file, behind any link: a rename is atomic within one file system
    # only, and os.replace on the link itself would put a plain file in its place.
    target = Path(os.path.realpath(path))
    with _explained(target, what):
        _replace(target, data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def _explained(target: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        before = "The file that was there is intact." if target.is_file() else "Nothing was written."
        raise OSError(
            error.errno, f"The {what} could not be saved: {error.strerror or error}. {before}", os.fspath(target)
        ) from error


def _replace(target: Path, data: bytes) -> None:
    """Write beside the target, flush, rename, flush the folder."""
    old = target.stat() if target.exists() else None
    # A device or a FIFO, such as /dev/null, must not be renamed away by a program that runs as root.
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EEXIST, "there is something else than a file at this path")
    if not target.parent.is_dir():
        raise OSError(errno.ENOENT, f"there is no folder {target.parent}; create it first")
    # A random name, opened with "x": two writers never share a draft, and a link that somebody planted under a name
    # that can be guessed is not followed.
    draft = target.with_name(f".everlearn-{secrets.token_hex(8)}.tmp")
    try:
        with open(draft, "xb") as file:
            # Before the first byte is written: a model that only its owner may read is never there for others, not even
            # as a draft.
            if old is not None:
                os.chmod(draft, stat.S_IMODE(old.st_mode))
            file.write(data)
            file.flush()
            # Before the rename: a file system may write the new name first, and after a power failure the name would
            # stand for an empty file.
            os.fsync(file.fileno())
        os.replace(draft, target)
    # Also on Ctrl-C: a draft that is left behind is as large as a model.
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    flush_folder(target.parent)


def flush_folder(folder: Path) -> None:
    """Make the new name durable, where the system lets a folder be opened and flushed."""
    # Without this the file is whole after a power failure, but perhaps the old one. Windows opens no folders.
    with contextlib.suppress(PermissionError, NotImplementedError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
