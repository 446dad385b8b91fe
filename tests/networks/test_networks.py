"""Incremental moment matching for networks."""

import gzip
import importlib.util
import struct
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from everlearn.continual import disjoint
from everlearn.errors import InputError, MergeError, MissingExtraError
from everlearn.gaussian import merge as merging

if importlib.util.find_spec("torch"):
    import torch

    from everlearn import networks

pytestmark = pytest.mark.torch
seeds = st.integers(0, 10**6)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def small(seed=0, sizes=(3, 5, 4)):
    return networks.multilayer_perceptron(sizes, random_state=seed)


def rows(n=20, D=3, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)).astype(np.float32), rng.integers(n_classes, size=n)


def random_fisher(network, seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(p.shape, generator=generator) + 0.01 for name, p in network.named_parameters()}


def same(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], **({"rtol": 1e-5, "atol": 1e-6} | tolerance))


def flat(state):
    return np.concatenate([value.double().numpy().ravel() for value in state.values()])


# -- merging ----------------------------------------------------------------------------------------


@given(seeds, st.integers(1, 4))
def test_rules_are_those_of_gaussian_posteriors(seed, K):
    models = [small(seed + k) for k in range(K)]
    fishers = [random_fisher(model, seed + k) for k, model in enumerate(models)]
    alphas = np.random.default_rng(seed).uniform(0.1, 1.0, K)
    means = np.stack([flat(model.state_dict()) for model in models])
    variances = 1.0 / np.stack([flat(fisher) for fisher in fishers])
    mean = networks.mean_imm(models, alphas=alphas)
    mode = networks.mode_imm(models, fishers, alphas=alphas)
    np.testing.assert_allclose(flat(mean), merging.mean_imm(alphas, means, variances).mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(flat(mode), merging.mode_imm(alphas, means, variances).mean, rtol=1e-4, atol=1e-5)


@given(seeds)
def test_laws(seed):
    a, b = small(seed), small(seed + 1)
    before = flat(a.state_dict())
    F, G = random_fisher(a, seed), random_fisher(b, seed + 1)
    same(networks.mean_imm([a, b]), networks.mean_imm([b, a]))
    same(networks.mode_imm([a, b], [F, G], alphas=[1, 3]), networks.mode_imm([b, a], [G, F], alphas=[3, 1]))
    same(networks.mode_imm([a, a], [F, G]), a.state_dict())
    same(networks.mode_imm([a, b], [F, F]), networks.mean_imm([a, b]))
    same(networks.mean_imm([a, b], alphas=[1, 0]), a.state_dict())
    merged = networks.with_state(a, networks.mean_imm([a, b]))
    for parameter in merged.parameters():
        parameter.data.zero_()
    np.testing.assert_array_equal(flat(a.state_dict()), before)


def test_a_weight_that_matters_to_one_task_only_is_taken_from_it():
    a, b = small(0), small(1)
    F, G = random_fisher(a, 0), {name: torch.zeros_like(p) for name, p in b.named_parameters()}
    G["0.bias"] = torch.ones(5)
    same(networks.mode_imm([a, b], [F, G]), a.state_dict() | {"0.bias": networks.mode_imm([a, b], [F, G])["0.bias"]})


def test_a_weight_that_matters_to_no_task_is_averaged():
    a, b = small(0), small(1)
    F = random_fisher(a, 0)
    F["0.weight"] = torch.zeros_like(F["0.weight"])
    merged = networks.mode_imm([a, b], [F, F], floor=1e-8)
    torch.testing.assert_close(merged["0.weight"], networks.mean_imm([a, b])["0.weight"])


def test_buffers_are_averaged_and_counters_come_from_the_last():
    def make(mean, count):
        network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        network[1].running_mean.fill_(mean)
        network[1].num_batches_tracked.fill_(count)
        return network

    a, b = make(1.0, 3), make(3.0, 9)
    for merged in (networks.mean_imm([a, b]), networks.mode_imm([a, b], [random_fisher(a, 0), random_fisher(b, 1)])):
        assert merged["1.running_mean"].tolist() == [2.0, 2.0]
        assert int(merged["1.num_batches_tracked"]) == 9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: networks.mean_imm([]), "no networks"),
        (lambda a: networks.mean_imm([a, small(sizes=(3, 6, 4))]), "has the shape"),
        (lambda a: networks.mean_imm([a, small(sizes=(3, 5, 5, 4))]), "other entries: 4.bias, 4.weight"),
        (lambda a: networks.mean_imm([a, a], alphas=[1.0]), "alphas must be 2 numbers"),
        (lambda a: networks.mean_imm([a, a], alphas=[-1.0, 2.0]), "alphas must be"),
        (lambda a: networks.mode_imm([a, a], [random_fisher(a, 0)]), "2 networks and 1 fishers"),
        (lambda a: networks.mode_imm([a], [{"0.bias": torch.ones(7)}]), "one architecture|has the shape"),
    ],
)
def test_what_cannot_be_merged(call, message):
    with pytest.raises(MergeError, match=message):
        call(small())


# -- Fisher information -----------------------------------------------------------------------------


def naive_fisher(network, X, y):
    """One sample, one backward pass, at a time."""
    total = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for x, label in zip(torch.from_numpy(X), torch.from_numpy(y), strict=True):
        network.zero_grad()
        torch.log_softmax(network(x[None])[0], dim=0)[label].backward()
        for name, p in network.named_parameters():
            total[name] += p.grad.square()
    return {name: value / len(X) for name, value in total.items()}


@given(seeds, st.integers(1, 20), st.integers(1, 30))
def test_fisher_squares_the_gradients_of_single_samples(seed, n, batch_size):
    network, (X, y) = small(seed), rows(n, seed=seed)
    ours = networks.diagonal_fisher(network, X, y, batch_size=batch_size)
    same(ours, naive_fisher(network, X, y), rtol=1e-4, atol=1e-7)


def test_drawn_labels_give_the_true_fisher_information():
    """Of a softmax regression, F of weight (c, d) is the mean of p_c (1 - p_c) x_d^2."""
    network = small(sizes=(2, 3))
    X = np.tile(np.array([[1.0, -2.0], [0.5, 1.5]], dtype=np.float32), (10_000, 1))
    p = torch.softmax(network(torch.from_numpy(X[:2])), dim=1).detach().numpy()
    expected = np.mean(p[:, :, None] * (1 - p[:, :, None]) * X[:2, None, :] ** 2, axis=0)
    ours = networks.diagonal_fisher(network, X, batch_size=1000)["0.weight"]
    np.testing.assert_allclose(ours, expected, rtol=0.05)


def test_fisher_leaves_the_network_as_it_was():
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5)).train()
    before, state = flat(network.state_dict()), torch.random.get_rng_state()
    X, y = rows()
    same(networks.diagonal_fisher(network, X, y), naive_fisher(network.eval(), X, y), rtol=1e-4)
    network.train()
    networks.diagonal_fisher(network, X)
    assert network.training
    np.testing.assert_array_equal(flat(network.state_dict()), before)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_another_likelihood():
    network, (X, _) = small(sizes=(3, 1)), rows()
    y = np.zeros(20, dtype=np.float32)
    ours = networks.diagonal_fisher(
        network, X, y, log_likelihood=lambda output, target: -0.5 * (output[0] - target) ** 2
    )
    residual = network(torch.from_numpy(X))[:, 0].detach().numpy()
    np.testing.assert_allclose(ours["0.bias"], [np.mean(residual**2)], rtol=1e-4)
    with pytest.raises(InputError, match="Give the labels"):
        networks.diagonal_fisher(network, X, log_likelihood=lambda output, target: output[0])
    with pytest.raises(InputError, match="no rows"):
        networks.diagonal_fisher(network, X[:0])


# -- transfer ---------------------------------------------------------------------------------------


def test_l2_pulls_towards_the_earlier_weights():
    network, earlier = small(0), small(1).state_dict()
    networks.l2_penalty(network, earlier).backward()
    for name, p in network.named_parameters():
        torch.testing.assert_close(p.grad, 2.0 * (p.detach() - earlier[name]))


def test_a_dropped_unit_falls_back_to_its_earlier_weights():
    network, earlier = small(0).train(), small(1)
    x = torch.randn(200, 3)
    old, new = earlier[0](x), network[0](x)
    with networks.drop_transfer(network, earlier.state_dict(), p=0.25):
        hidden = network[0](x)
        np.testing.assert_array_equal(network[2](hidden).detach(), network[2](hidden).detach())
    fell = torch.isclose(hidden, old, atol=1e-6)
    kept = torch.isclose(hidden, old + (new - old) / 0.75, atol=1e-5)
    assert bool((fell | kept).all())
    assert abs(float(fell.double().mean()) - 0.25) < 0.06
    torch.testing.assert_close(network[0](x), new)


def test_drop_transfer_without_earlier_weights_is_dropout_and_rests_in_evaluation():
    network = small(0)
    x = torch.randn(50, 3)
    plain = network[0](x)
    with networks.drop_transfer(network, p=0.5):
        dropped = network.train()[0](x)
        asked = network.eval()[0](x)
    torch.testing.assert_close(asked, plain)
    zero = dropped == 0
    torch.testing.assert_close(dropped[~zero], 2.0 * plain[~zero])
    assert 0.3 < float(zero.double().mean()) < 0.7


def test_drop_transfer_ends_after_an_error():
    network = small(0).train()

    def fail():
        with networks.drop_transfer(network, p=0.9):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not network[0]._forward_hooks
    with pytest.raises(InputError, match="p must be"), networks.drop_transfer(network, p=1.0):
        pass


# -- training ---------------------------------------------------------------------------------------


def test_training_repeats_and_leaves_global_randomness_alone():
    X, y = rows(60)
    state = torch.random.get_rng_state()
    once, again = (networks.train(small(0), X, y, drop=0.3, epochs=2).state_dict() for _ in range(2))
    other = networks.train(small(0), X, y, drop=0.3, epochs=2, random_state=1).state_dict()
    same(once, again, rtol=0, atol=0)
    assert not np.array_equal(flat(once), flat(other))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_transfer_stays_nearer_to_the_earlier_weights():
    X, y = rows(200)
    first = networks.train(small(0), X, y, epochs=3).state_dict()
    X, y = rows(200, seed=1)
    trained = {l2: networks.train(small(5), X, y, previous=first, l2=l2, batch_size=20) for l2 in (0.0, 0.5)}
    distance = {l2: np.linalg.norm(flat(network.state_dict()) - flat(first)) for l2, network in trained.items()}
    assert distance[0.5] < 0.5 * distance[0.0]


def test_merged_networks_keep_both_tasks():
    digits = load_digits()
    X = (digits.data / 16.0).astype(np.float32)
    tasks = list(disjoint(X, digits.target))
    untrained = networks.multilayer_perceptron((64, 128, 10))
    before = flat(untrained.state_dict())
    results = networks.run_imm(untrained, tasks, epochs=12, batch_size=20, learning_rate=0.1, fisher_rows=500)
    assert results["last"].summary()["ACC"] < 0.6
    assert results["mode"].summary()["ACC"] > 0.75
    assert results["mean"].summary()["ACC"] > results["last"].summary()["ACC"]
    for rule in ("mean", "mode"):
        np.testing.assert_array_equal(results[rule].R[0], results["last"].R[0])
    np.testing.assert_array_equal(flat(untrained.state_dict()), before)


def test_rules_may_weigh_the_tasks_differently():
    X, y = rows(200)
    tasks = list(disjoint(X, y % 2, groups=2))
    settings = {"epochs": 10, "batch_size": 20, "fisher_rows": 50}
    both = networks.run_imm(small(0), tasks, alphas=(0.001, 1.0), **settings)
    mode = networks.run_imm(small(0), tasks, alphas={"mode": (0.001, 1.0)}, **settings)
    equal = networks.run_imm(small(0), tasks, **settings)
    np.testing.assert_array_equal(mode["mode"].R, both["mode"].R)
    np.testing.assert_array_equal(mode["mean"].R, equal["mean"].R)
    assert not np.array_equal(both["mean"].R, equal["mean"].R)
    with pytest.raises(InputError, match="weights for median; the rules are"):
        networks.run_imm(small(0), tasks, alphas={"median": (1.0, 1.0)}, **settings)


def write_idx(path, array):
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


def test_mnist_tasks_come_from_files(tmp_path):
    rng = np.random.default_rng(0)
    for name, n in (("train", 60), ("t10k", 40)):
        write_idx(tmp_path / f"{name}-images-idx3-ubyte.gz", rng.integers(256, size=(n, 28, 28)).astype(np.uint8))
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte.gz", (np.arange(n) % 10).astype(np.uint8))
    first, second = networks.mnist_tasks("disjoint", tmp_path)
    assert first.X.dtype == np.float32
    assert 0.0 <= first.X.min() < first.X.max() <= 1.0
    assert (set(first.y), set(second.y_test)) == ({0, 1, 2, 3, 4}, {5, 6, 7, 8, 9})
    shuffled = networks.mnist_tasks("shuffled", tmp_path, n_tasks=2)
    assert [task.X.shape for task in shuffled] == [(60, 784), (60, 784)]
    with pytest.raises(InputError, match="choose 'disjoint' or 'shuffled'"):
        networks.mnist_tasks("random", tmp_path)
    with pytest.raises(InputError, match="MNIST files"):
        networks.mnist_tasks("disjoint", tmp_path / "nowhere")


def test_missing_torch_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "everlearn.networks.torch_import")
    with pytest.raises(MissingExtraError, match=r"everlearn\[torch\]"):
        importlib.import_module("everlearn.networks.torch_import")
