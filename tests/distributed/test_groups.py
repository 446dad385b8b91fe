"""fit(by=): one model a group, whatever the partitions."""

import numpy as np
import pandas as pd
import pytest

import everlearn
from everlearn import IncrementalGaussianMixture
from everlearn.distributed import fit
from everlearn.errors import InputError
from everlearn.persistence.model_file import dumps


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(3):
        keys = rng.integers(5, size=500)
        frame = pd.DataFrame(rng.normal(size=(500, 2)) + keys[:, None], columns=["a", "b"]).assign(device=keys)
        frame.to_csv(tmp_path / f"{i}.csv", index=False)
    return tmp_path


def learned(folder, **options):
    return fit(IncrementalGaussianMixture(random_state=0), folder, engine="threading", workers=1, **options)


def test_groups_of_one_partition_are_learned_alone(folder):
    groups, report = learned(folder / "0.csv", by="device")
    rows = pd.read_csv(folder / "0.csv")
    assert list(groups) == ["0", "1", "2", "3", "4"]
    assert report.rows == groups.n_samples_seen_ == 500
    for name, model in groups.items():
        own = rows[rows.device == int(name)][["a", "b"]]
        assert dumps(model) == dumps(IncrementalGaussianMixture(random_state=0).partial_fit(own))
        assert groups.rows[name] == len(own)


@pytest.mark.slow
def test_groups_of_several_partitions_are_merged(folder, tmp_path):
    groups, _ = learned(folder, by="device", columns=["a", "b"])
    parts = [learned(folder / f"{i}.csv", by="device").model["3"] for i in range(3)]
    assert dumps(groups["3"]) == dumps(everlearn.merge(parts))
    groups.save(tmp_path / "models")
    assert dumps(everlearn.load(tmp_path / "models" / "3.evl")) == dumps(groups["3"])
    assert "device" not in groups["3"].feature_names_in_


def test_what_cannot_be_grouped(folder):
    with pytest.raises(InputError, match="no column 'site'"):
        learned(folder, by="site")
    with pytest.raises(InputError, match="without a target"):
        learned(folder, by="device", target="a")
