"""Modules that are imported when something of them is used."""

import subprocess
import sys

import pytest

from everlearn.cli.deferred import defer

pytestmark = pytest.mark.slow


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
from everlearn.cli import main
main.get_command(None, "show")
import sklearn.base
assert "scipy.stats._stats_py" not in sys.modules
assert not hasattr(sys.modules["scipy.stats"], "__file__")
{use}
assert "scipy.stats._stats_py" in sys.modules
assert sys.modules["scipy.stats"].__file__
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "use",
    [
        "import numpy.f2py; assert numpy.f2py.get_include()",
        "import numpy; numpy.testing.assert_array_equal([1], [1])",
        "from numpy.testing import assert_array_equal",
    ],
)
def test_parts_of_numpy_come_when_they_are_used(use):
    code = f"""
import sys
from everlearn.cli import main
main.get_command(None, "show")
import scipy.special
assert not {{"numpy.f2py.crackfortran", "numpy.testing._private.utils"}} & set(sys.modules)
{use}
assert {{"numpy.f2py.crackfortran", "numpy.testing._private.utils"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("early", ["", "import pandas"])
def test_scikit_learn_comes_without_pandas_and_takes_its_tables(early):
    code = f"""
import importlib.util, sys
{early}
from everlearn.cli.deferred import import_scikit_learn
import_scikit_learn()
from sklearn.utils import check_array, fixes
assert check_array([[1.0]]).shape == (1, 1)
assert ("pandas" in sys.modules) == bool({early!r})
assert importlib.util.find_spec("pandas").origin
assert fixes.pd.__version__
import pandas
assert pandas.__file__ and fixes.pd.DataFrame is pandas.DataFrame
from sklearn.preprocessing import StandardScaler
found = StandardScaler().set_output(transform="pandas").fit_transform(pandas.DataFrame({{"a": [1.0, 3.0]}}))
assert found["a"].tolist() == [-1.0, 1.0]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_special_functions_come_without_the_notes_that_scipy_adds_to_their_docstrings():
    code = """
from everlearn.cli.deferred import import_scikit_learn
import_scikit_learn()
import scipy.special
from scipy._lib import _array_api
assert _array_api.FunctionDoc.__name__ == "FunctionDoc", "later functions have their notes"
text = scipy.special.gammaln.__doc__
assert "gamma" in text and "Array API Standard Support" not in text, text
assert scipy.special.gammaln(3.0) > 0.69
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tables_of_other_libraries_are_read_when_they_come():
    code = """
import sys
from everlearn.cli.deferred import import_scikit_learn
import_scikit_learn()
from sklearn.utils import check_array
assert "narwhals.dataframe" not in sys.modules
import pandas
assert check_array(pandas.DataFrame({"a": [1.0, 3.0]})).tolist() == [[1.0], [3.0]]
import narwhals.stable.v1, yaml
assert narwhals.__file__ and narwhals.stable.v1.from_native and yaml.safe_load("[1]") == [1]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_package_that_is_not_installed_is_not_deferred():
    defer("no_such_package")
    assert "no_such_package" not in sys.modules
    with pytest.raises(ImportError):
        import no_such_package  # noqa: F401
