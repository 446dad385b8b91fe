"""What all tests share: one BLAS thread a worker, reproducible Hypothesis runs, the shared data."""

import os

# xdist already runs one process a core; this must happen before NumPy loads its BLAS.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ[_name] = "1"

import importlib.util
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from order import compiled_once

ROOT = Path(__file__).parents[1]

# A shell starts what it runs in the background with Ctrl-C ignored, which the tests of interrupts would then wait for.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def forget_stale_kernels() -> None:
    """Delete what numba has compiled of the tests' own kernels before the last change of the sources.

    A kernel of the library is stamped with all the files that it is made of, one of a test with the test's file alone:
    it would go on testing the functions that it was compiled with.
    """
    newest = max(file.stat().st_mtime for file in (ROOT / "src").rglob("*.py"))
    for index in (ROOT / "tests").rglob("*.nbi"):
        # Another worker may have deleted it.
        if index.exists() and index.stat().st_mtime < newest:
            index.unlink(missing_ok=True)


forget_stale_kernels()

settings.register_profile(
    "everlearn",
    derandomize=True,
    deadline=None,
    max_examples=30,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("everlearn"), derandomize=False, max_examples=1000)
settings.load_profile("everlearn")


@pytest.hookimpl(trylast=True)  # when -m has left out what it leaves out, so that both workers get a half
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests, and let those marked `torch` say what they need where torch is not installed."""
    items[:] = compiled_once(items)
    if importlib.util.find_spec("torch"):
        return
    missing = pytest.mark.skip(reason="torch is not installed: pip install 'everlearn[torch]'")
    for item in items:
        if item.get_closest_marker("torch"):
            item.add_marker(missing)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets: $EVERLEARN_DATA, or shared/data beside the repository."""
    folder = Path(os.environ.get("EVERLEARN_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}; set EVERLEARN_DATA to its folder")
    return folder
