"""Modules that are imported when something of them is used."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "use",
    [
        "import scipy.stats.qmc; assert scipy.stats.qmc.Sobol(2).random(2).shape == (2, 2)",
        "from sklearn.utils.fixes import _mode; assert _mode([1, 1, 2]).mode == 1",
    ],
)
def test_statistics_come_when_they_are_used(use):
    code = f"""
import sys
import everlearn.cli
import sklearn.base
assert "scipy.stats._stats_py" not in sys.modules
assert not hasattr(sys.modules["scipy.stats"], "__file__")
{use}
assert "scipy.stats._stats_py" in sys.modules
assert sys.modules["scipy.stats"].__file__
"""
    subprocess.run([sys.executable, "-c", code], check=True)
