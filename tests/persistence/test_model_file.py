"""Model files: what goes in comes out."""

import errno
import importlib
import os
import pkgutil
import stat

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import everlearn
from everlearn.base.estimator import StreamEstimator
from everlearn.errors import InputError
from everlearn.persistence import model_file as persistence
from everlearn.persistence import registry
from everlearn.persistence.codec import LARGEST_NUMBER, Decoder, Encoder
from everlearn.persistence.model_file import dumps, loads
from toys import Rate, RunningNormal, Sums, fitted


def there_and_back(value):
    """Through the bytes of a file, as an attribute of a model."""
    model = fitted()
    model.extra_ = value
    return loads(dumps(model)).extra_


def same(a, b):
    if isinstance(a, np.ndarray):
        return type(b) is np.ndarray and a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and repr(a) == repr(b)


# -- what goes in comes out ------------------------------------------------------------------------

numbers = st.sampled_from([np.bool_, np.int8, np.int64, np.uint8, np.uint32, np.float16, np.float32, np.float64])
arrays = numbers.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)))
scalars = st.none() | st.booleans() | st.integers(-LARGEST_NUMBER, LARGEST_NUMBER) | st.floats() | st.text()
# A scalar of NumPy's is written as a number, so that the largest whole ones are refused as plain ones are.
numpy_scalars = numbers.flatmap(lambda dtype: hnp.from_dtype(np.dtype(dtype))).filter(
    lambda value: value.dtype != np.int64 or abs(int(value)) <= LARGEST_NUMBER
)
values = st.recursive(
    scalars | arrays | numpy_scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.integers(-(2**52), 2**52) | st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_values_come_back_as_they_were(value):
    assert same(value, there_and_back(value))


@pytest.mark.parametrize("value", [LARGEST_NUMBER + 1, -LARGEST_NUMBER - 1, np.int64(LARGEST_NUMBER + 1)])
def test_larger_whole_numbers_are_refused(value):
    with pytest.raises(InputError, match="more than 62 bits"):
        there_and_back(value)


@given(arrays)
def test_memory_order_does_not_matter(array):
    for view in (np.asfortranarray(array), array.T, array[::-1] if array.ndim else array):
        back = there_and_back(view)
        assert back.shape == view.shape
        assert back.dtype == view.dtype
        assert back.flags.c_contiguous
        assert back.flags.writeable
        assert back.flags.owndata
        np.testing.assert_array_equal(back, view)


def test_fortran_order_is_what_safetensors_scrambles():
    F = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(there_and_back(F), F)
    np.testing.assert_array_equal(there_and_back(F[:, ::2]), F[:, ::2])


def test_foreign_byte_order():
    swapped = np.array([1.5, -2.0], dtype=">f8")
    np.testing.assert_array_equal(there_and_back(swapped), [1.5, -2.0])


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["yes", "no", "ümlaut \ud800"]),
        np.array([], dtype=str),
        np.array([["a", "bb"], ["ccc", ""]]),
        np.array(["a", None, 3, 2.5, ("t", 1)], dtype=object),
        np.array("zero-dimensional", dtype=object),
    ],
    ids=["texts", "none", "matrix", "mixed", "0-d"],
)
def test_label_arrays(labels):
    back = there_and_back(labels)
    assert back.dtype.kind == labels.dtype.kind
    assert back.shape == labels.shape
    assert back.tolist() == labels.tolist()


def test_generators_go_on_where_they_were():
    rng = np.random.default_rng(3)
    rng.integers(10, size=3, dtype=np.uint32)
    rng.normal(size=5)
    back = there_and_back(rng)
    np.testing.assert_array_equal(rng.normal(size=700), back.normal(size=700))
    np.testing.assert_array_equal(rng.integers(9, size=5, dtype=np.uint32), back.integers(9, size=5, dtype=np.uint32))


@pytest.mark.parametrize("rng", [np.random.RandomState(3), np.random.Generator(np.random.MT19937(0))])
def test_other_generators_are_refused(rng):
    with pytest.raises(InputError, match="As random_state give a whole number"):
        dumps(fitted(inner=rng))


def test_unused_room_is_not_written():
    """Zeros at the end of an array cost nothing in the file, and are there again after reading."""
    model = fitted()
    model.room_ = np.zeros((500, 20))
    model.room_[:3] = 1.5
    model.signed_ = np.array([1.0, -0.0])
    data = dumps(model)
    assert len(data) < 4000
    back = loads(data)
    np.testing.assert_array_equal(back.room_, model.room_)
    assert np.signbit(back.signed_[1])
    back.room_[400] = 2.0  # room to write to


def test_room_beyond_what_a_reader_grants_is_written():
    model = fitted()
    model.room_ = np.zeros((10_000_000,))
    assert len(dumps(model)) > 80_000_000
    model.room_ = np.zeros((1000, 1000))
    model.room_[:100] = 1.0
    assert len(dumps(model)) < 900_000
    np.testing.assert_array_equal(loads(dumps(model)).room_, model.room_)


def test_named_tuples_dataclasses_and_models_nest():
    model = fitted(rate=Rate(2.0, float("nan")), inner=RunningNormal(ridge=0.5))
    model.parts_ = {1: Sums(1.0, np.ones(3), np.zeros(3)), "others": [fitted(), RunningNormal()]}
    back = loads(dumps(model))
    assert type(back.rate) is Rate
    assert repr(back.rate) == repr(model.rate)
    assert back.inner.ridge == 0.5
    assert not back.inner._is_started()
    assert type(back.parts_[1]) is Sums
    assert dumps(back.parts_["others"][0]) == dumps(fitted())
    assert dumps(back) == dumps(model)


def test_caches_are_left_out():
    model = fitted()
    model._cache_ = np.ones(1000)
    assert "_cache_" not in vars(loads(dumps(model)))


def test_feature_names():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=["temp", "rpm"])
    back = loads(dumps(RunningNormal().fit(frame)))
    assert back.feature_names_in_.dtype == object
    assert list(back.feature_names_in_) == ["temp", "rpm"]
    with pytest.raises(ValueError, match="feature names"):
        back.partial_fit(frame[["rpm", "temp"]])


@pytest.mark.parametrize("value", [lambda x: x, {1, 2}, object(), 1j, np.array([1j]), np.datetime64("2020"), bytes(3)])
def test_what_cannot_be_saved_is_named(value):
    model = fitted()
    model.odd_ = [1, value]
    with pytest.raises(InputError, match=r"odd_\.1"):
        dumps(model)


def test_endless_nesting_is_refused():
    model = fitted()
    model.loop_ = []
    model.loop_.append(model.loop_)
    with pytest.raises(InputError, match="loop_"):
        dumps(model)


def test_only_models_and_known_classes_are_saved():
    class Stranger(RunningNormal):
        pass

    with pytest.raises(InputError, match="Stranger"):
        dumps(Stranger())
    with pytest.raises(InputError, match="not a dict"):
        dumps({})
    with pytest.raises(InputError, match="neither"):
        registry.register(dict)


def test_names_are_taken_once():
    other = type("RunningNormal", (RunningNormal,), {})
    with pytest.raises(InputError, match="already"):
        registry.register(other)


def test_the_table_of_classes_is_true():
    """Every class a file may name exists and is of the sort it is listed under."""
    for tag in registry.TAGS:
        cls = registry.class_named(tag, lambda found: registry.is_value(found) or registry.is_estimator(found))
        assert registry.tag_of(cls) == tag


def test_every_estimator_can_be_saved():
    """Whoever adds an estimator adds it to the table."""
    for module in pkgutil.walk_packages(everlearn.__path__, "everlearn."):
        if module.name.endswith(".estimator"):
            importlib.import_module(module.name)
    classes = [cls for cls in all_subclasses(StreamEstimator) if cls.__module__.startswith("everlearn.")]
    public = [cls for cls in classes if not cls.__subclasses__()]
    assert public
    assert all(registry.tag_of(cls) for cls in public)


def all_subclasses(cls):
    return [found for child in cls.__subclasses__() for found in (child, *all_subclasses(child))]


def test_parameters_that_no_longer_fit_are_refused_before_the_file_is_written(tmp_path):
    model = fitted().set_params(ridge=-1.0)
    with pytest.raises(InputError, match=r"RunningNormal cannot be saved.*'ridge'.*take effect with fit"):
        model.save(tmp_path / "m.evl")
    model = everlearn.IncrementalGaussianMixture().fit(np.eye(3)).set_params(forgetting="adaptive")
    with pytest.raises(InputError, match="IncrementalGaussianMixture cannot be saved"):
        model.save(tmp_path / "m.evl")
    assert os.listdir(tmp_path) == []


@given(values)
def test_trees_of_anything_decode_or_are_refused(value):
    """Whatever encodes also decodes, without the bytes between."""
    encoder = Encoder()
    decoder = Decoder(encoder.arrays, 10**6)
    assert same(value, decoder.decode(encoder.encode(value, "")))
    assert not encoder.arrays


# -- the file --------------------------------------------------------------------------------------


def test_save_and_load(tmp_path):
    model = fitted()
    path = tmp_path / "model.evl"
    model.save(path)
    back = everlearn.load(str(path))
    X = np.random.default_rng(1).normal(size=(20, 6))
    np.testing.assert_array_equal(back.score_samples(X), model.score_samples(X))
    np.testing.assert_array_equal(back.partial_fit(X).score_samples(X), model.partial_fit(X).score_samples(X))
    assert os.listdir(tmp_path) == ["model.evl"]


def test_any_safetensors_reader_sees_the_arrays(tmp_path):
    fitted().save(tmp_path / "m.evl")
    tensors = safetensors.numpy.load_file(tmp_path / "m.evl")
    assert {name.partition(":")[2] for name in tensors} == {"_sums_.mean", "_sums_.scatter"}


def test_permissions_follow_the_umask_and_the_old_file(tmp_path):
    path = tmp_path / "m.evl"
    fitted().save(path)
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    path.chmod(0o600)
    fitted().save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_followed(tmp_path):
    fitted().save(tmp_path / "real.evl")
    (tmp_path / "link.evl").symlink_to("real.evl")
    fitted(ridge=0.5).save(tmp_path / "link.evl")
    assert (tmp_path / "link.evl").is_symlink()
    assert everlearn.load(tmp_path / "real.evl").ridge == 0.5


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "m.evl"
    fitted().save(path)
    before = path.read_bytes()

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(persistence.os, step, full)
    with pytest.raises(OSError, match=r"could not be saved: No space left on device.*intact") as error:
        fitted(ridge=0.5).save(path)
    assert error.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.evl"]


def test_places_that_cannot_hold_a_file(tmp_path):
    with pytest.raises(OSError, match=r"no folder .*; create it first"):
        fitted().save(tmp_path / "absent" / "m.evl")
    with pytest.raises(OSError, match="something else than a file"):
        fitted().save(tmp_path)
    with pytest.raises(OSError, match="something else than a file"):
        fitted().save(os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_an_absent_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        everlearn.load(tmp_path / "absent.evl")
