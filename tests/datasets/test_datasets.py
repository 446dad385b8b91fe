"""The data sets that come with the package, beside their sources."""

import csv
import gzip
import re
import tarfile

import numpy as np
import pytest

from everlearn import datasets
from everlearn.errors import InputError

# Rows, columns, nominal columns, classes and missing cells (FIGMN, Table 1, and the ARFF files).
SHAPES = {
    "breast_cancer": (286, 9, 9, 2, 9),
    "diabetes": (768, 8, 0, 2, 0),
    "glass": (214, 9, 0, 6, 0),
    "ionosphere": (351, 34, 0, 2, 0),
    "iris": (150, 4, 0, 3, 0),
    "labor": (57, 16, 8, 2, 326),
    "soybean": (683, 35, 35, 19, 2337),
}


@pytest.mark.parametrize("name", datasets.NAMES)
def test_shapes(name):
    data = getattr(datasets, f"load_{name}")()
    X, y = data.data, data.target
    assert (*X.shape, data.categorical.sum(), len(data.target_names), np.isnan(X).sum()) == SHAPES[name]
    assert X.dtype == np.float64
    assert X.flags.c_contiguous
    assert sorted(set(y.tolist())) == list(range(len(data.target_names)))
    assert len(data.feature_names) == X.shape[1]
    assert "UCI" in data.DESCR


def arff(path):
    """Attributes with their categories (None for numbers), and rows of text."""
    attributes, rows, in_data = [], [], False
    for line in map(str.strip, path.read_text(encoding="ascii").splitlines()):
        if not line or line.startswith("%"):
            continue
        if in_data:
            rows.append([cell.strip(" '\t") for cell in next(csv.reader([line], quotechar="'"))])
        elif line.lower().startswith("@attribute"):
            name, kind = re.match(r"@\w+\s+('[^']*'|\S+)\s+(.*)", line).groups()
            values = [value.strip(" '\t") for value in kind.strip("{} \t").split(",")] if kind[0] == "{" else None
            attributes.append((name.strip("'"), values))
        in_data = in_data or line.lower() == "@data"
    return attributes, rows


@pytest.mark.parametrize("name", datasets.NAMES)
def test_values_are_those_of_the_source(name, shared_data):
    attributes, rows = arff(shared_data / "weka" / f"{name.replace('_', '-')}.arff")
    data = datasets.load(name)
    assert data.feature_names.tolist() == [column for column, _ in attributes[:-1]]
    assert len(rows) == len(data.data)
    for row, x, label in zip(rows, data.data, data.target, strict=True):
        assert row[-1] == data.target_names[label]
        for text, value, (column, categories) in zip(row[:-1], x, attributes[:-1], strict=True):
            if text == "?":
                assert np.isnan(value)
            elif categories is None:
                assert value == float(text)
            else:
                assert data.categories[column][int(value)] == text
                assert data.categories[column] == categories


def test_each_call_gives_new_arrays():
    first = datasets.load_iris()
    first.data[:] = 0
    first.categories["new"] = []
    assert datasets.load_iris().data.min() > 0
    assert datasets.load_iris().categories == {}


def test_names_with_hyphens_and_unknown_names():
    assert datasets.load("breast-cancer").data.shape == (286, 9)
    with pytest.raises(InputError, match=r"name='irises'.*breast_cancer, diabetes"):
        datasets.load("irises")


# -- MNIST ------------------------------------------------------------------------------------------


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def write_mnist(folder, pack=gzip.compress, suffix=".gz"):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(5, 28, 28))
    for prefix in ("train", "t10k"):
        (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(images)))
        (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(np.arange(5))))
    return images


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bytes, "")])
def test_mnist_from_a_folder(tmp_path, monkeypatch, pack, suffix):
    (tmp_path / "mnist").mkdir()
    images = write_mnist(tmp_path / "mnist", pack, suffix)
    monkeypatch.setenv("EVERLEARN_DATA", str(tmp_path))
    for mnist in (datasets.load_mnist(tmp_path / "mnist"), datasets.load_mnist()):
        assert np.array_equal(mnist.data, images.reshape(5, 784))
        assert mnist.test_target.tolist() == [0, 1, 2, 3, 4]
        assert mnist.data.dtype == np.uint8


def test_mnist_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.delenv("EVERLEARN_DATA", raising=False)
    with pytest.raises(InputError, match=r"folder=.*EVERLEARN_DATA.*fetch_mnist"):
        datasets.load_mnist()
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.gz in .*fetch_mnist"):
        datasets.load_mnist(tmp_path)


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:5], lambda data: b"P5" + data[2:]])
def test_damaged_mnist_is_refused(tmp_path, damage):
    write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(damage(idx(np.arange(5)))))
    with pytest.raises(InputError, match="train-labels"):
        datasets.load_mnist(tmp_path)


def test_real_mnist(shared_data):
    mnist = datasets.load_mnist(shared_data / "mnist")
    assert mnist.data.shape == (60000, 784)
    assert np.bincount(mnist.test_target).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


# -- CIFAR-10 --------------------------------------------------------------------------------------


def cifar_bytes(i, n=3):
    """A file of n records, written from the format's description: label, 1024 red, 1024 green, 1024 blue values."""
    records = []
    for row in range(n):
        planes = b"".join(bytes([10 * i + row + plane]) * 1024 for plane in range(3))
        records.append(bytes([(i + row) % 10]) + planes)
    return b"".join(records)


def write_cifar(folder):
    folder.mkdir(parents=True, exist_ok=True)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    for i, name in enumerate(names):
        (folder / name).write_bytes(cifar_bytes(i))


@pytest.mark.parametrize("kind", ["folder", "unpacked", "archive", "folder of the archive", "environment"])
def test_cifar10_from_wherever_its_files_are(tmp_path, monkeypatch, kind):
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    write_cifar(folder)
    place = {"folder": folder, "unpacked": folder.parent, "environment": None}.get(kind)
    if "archive" in kind:
        place = tmp_path / "cifar-10-binary.tar.gz"
        with tarfile.open(place, "w:gz") as archive:
            archive.add(folder, "cifar-10-batches-bin")
        place = tmp_path if kind.startswith("folder") else place
    monkeypatch.setenv("EVERLEARN_DATA", str(tmp_path))
    cifar = datasets.load_cifar10(place)
    assert cifar.data.shape == (15, 3072)
    assert cifar.data.dtype == np.uint8
    assert cifar.target.tolist() == [(i + row) % 10 for i in range(5) for row in range(3)]
    # The second record of the third file: red 21, green 22, blue 23 everywhere.
    assert np.array_equal(cifar.data[7], np.repeat([21, 22, 23], 1024))
    assert cifar.test_target.tolist() == [5, 6, 7]
    assert cifar.target_names[3] == "cat"


def test_cifar10_that_is_not_there_or_damaged(tmp_path, monkeypatch):
    monkeypatch.delenv("EVERLEARN_DATA", raising=False)
    with pytest.raises(InputError, match=r"path=.*EVERLEARN_DATA"):
        datasets.load_cifar10()
    with pytest.raises(InputError, match=r"cifar-10-binary.tar.gz.*pickled"):
        datasets.load_cifar10(tmp_path)
    write_cifar(tmp_path)
    for content, message in (
        (cifar_bytes(0)[:-1], "3073"),
        (b"\x63" + cifar_bytes(0)[1:], "label 99"),
        (b"", "0 bytes"),
    ):
        (tmp_path / "data_batch_2.bin").write_bytes(content)
        with pytest.raises(InputError, match=message):
            datasets.load_cifar10(tmp_path)
    (tmp_path / "data_batch_2.bin").unlink()
    with pytest.raises(InputError, match="six files"):
        datasets.load_cifar10(tmp_path)
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="six files"):
        datasets.load_cifar10(tmp_path / "a.tar.gz")


def test_real_cifar10(shared_data):
    if not (shared_data / "cifar10").exists():
        pytest.skip("there is no cifar10/ in the shared data")
    cifar = datasets.load_cifar10(shared_data / "cifar10")
    assert cifar.data.shape == (50000, 3072)
    assert np.bincount(cifar.test_target).tolist() == [1000] * 10
