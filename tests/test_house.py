"""What the project promises of its source, measured by tools/house.py; offenders are named."""

import importlib.util
import sys

import pytest


@pytest.fixture(scope="module")
def house(repository):
    spec = importlib.util.spec_from_file_location("house", repository / "tools" / "house.py")
    module = sys.modules["house"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- the figures themselves ------------------------------------------------------------------------

SOURCE = '''"""Words.

# no comment
"""


# a comment
@kernel
def f(a, b, *, c, **rest):
    """Words."""
    # another
    for i in range(3):  # trailing comments do not count

        if i:
            while False:
                pass
    return a


class C:
    def g(self, *x):
        return x
'''


@pytest.fixture
def toy(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "toy.py").write_text(SOURCE)
    return tmp_path


def test_functions_are_measured(house, toy):
    f, g = house.functions(toy / "kernels" / "toy.py", toy)
    assert f == ("kernels/toy.py:9 f", "kernels", 5, 4, 3, True)
    assert g == ("kernels/toy.py:21 g", "kernels", 1, 1, 0, False)


def test_comment_lines_are_counted(house, toy):
    counted = house.count_lines(toy / "kernels" / "toy.py")
    assert counted.comments == 2
    assert house.comment_share([counted]) == 2 / (counted.lines - counted.blank)


def test_kernels_with_many_parameters_are_named(house, toy):
    path = toy / "kernels" / "toy.py"
    assert house.long_kernels(toy) == []
    path.write_text(SOURCE.replace("a, b, ", "a, b, d, e, f, g, h, "))
    assert house.long_kernels(toy) == ["kernels/toy.py:9 f: 9 parameters"]


def test_circles_are_found(house):
    graph = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": [], "e": ["f"], "f": ["e"]}
    assert sorted(house.strongly_connected(graph)) == [["a", "b", "c"], ["e", "f"]]


# -- the promises ----------------------------------------------------------------------------------


def test_kernels_have_at_most_seven_parameters(house):
    assert house.long_kernels() == []


def test_the_source_says_why(house):
    counted = [house.count_lines(path) for path in house.files()]
    share = house.comment_share(counted)
    assert share >= house.LIMITS["comment share"], f"comment lines fell to {100 * share:.2f} %: make house"


def test_no_modules_import_each_other(house):
    pytest.importorskip("grimp")
    assert house.import_circles() == []


@pytest.mark.parametrize("name", ["IncrementalGaussianMixture", "FIGMN", "OnlinePPCA", "VariationalPPCA"])
def test_few_frames_lie_between_partial_fit_and_a_kernel(house, name):
    chain = house.chain_of_the_last_row(name)
    assert 1 <= house.frames(chain) <= house.LIMITS["frames of partial_fit"], "\n".join(chain)


def test_few_frames_lie_between_the_program_and_a_kernel(house):
    chain = house.chain_of_the_last_row("learn")
    assert 1 <= house.frames(chain) <= house.LIMITS["frames of learn"], "\n".join(chain)
