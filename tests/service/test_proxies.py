"""Behind a proxy: the root path, and whom a request comes from."""

import pytest

from everlearn.errors import InputError
from everlearn.service.proxies import client_behind, is_trusted
from everlearn.service.settings import Limits, Settings
from service_tools import TestClient

TRUSTED = Settings(trusted_proxies=("10.0.0.0/8", "fd00::/8", "192.168.1.1")).networks()


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.5", ["1.2.3.4"], "203.0.113.5"),  # no proxy of ours: what it says counts for nothing
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["1.1.1.1", "203.0.113.5"], "203.0.113.5"),  # the first one is the client's own invention
        ("10.0.0.1", ["203.0.113.5", "192.168.1.1"], "203.0.113.5"),  # two proxies
        ("10.0.0.1", ["203.0.113.5:4711"], "203.0.113.5"),
        ("10.0.0.1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("10.0.0.1", ["2001:db8::7"], "2001:db8::7"),
        ("fd00::1", ["203.0.113.5"], "203.0.113.5"),
        ("::ffff:10.0.0.1", ["203.0.113.5"], "203.0.113.5"),
        ("10.0.0.1", ["203.0.113.5", "unknown"], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_one_that_is_no_proxy(peer, forwarded, client):
    assert client_behind(peer, forwarded, TRUSTED) == client


def test_what_is_no_address_is_not_trusted():
    assert not is_trusted("testclient", TRUSTED)
    assert not is_trusted("", TRUSTED)


def test_settings_name_a_bad_network_or_path():
    with pytest.raises(InputError, match="--trusted-proxy"):
        Settings(trusted_proxies=("proxy.example.com",))
    for path in ("everlearn", "/everlearn/", "/a b", "//"):
        with pytest.raises(InputError, match="root path"):
            Settings(root_path=path)


def proxied(client, address="10.0.0.1"):
    """The same application, as a client at an address sees it."""
    return TestClient(client.app, base_url="http://localhost", client=(address, 1))


def test_addresses_behind_a_proxy_are_counted_apart(open_client):
    client = proxied(open_client(trusted_proxies=("10.0.0.0/8",), limits=Limits(requests_per_second=1.0)))
    for host in range(5):
        answers = [client.get("/livez", headers={"X-Forwarded-For": f"203.0.113.{host}"}).status_code for _ in range(4)]
        assert answers[:2] == [200, 200]
        assert 429 in answers


def test_an_untrusted_client_cannot_choose_its_address(open_client):
    client = proxied(open_client(trusted_proxies=("10.0.0.0/8",), limits=Limits(requests_per_second=1.0)), "8.8.8.8")
    answers = [client.get("/livez", headers={"X-Forwarded-For": f"203.0.113.{i}"}).status_code for i in range(5)]
    assert 429 in answers


def test_the_origin_is_compared_with_the_forwarded_host(open_client):
    client = proxied(open_client(token="a-token-that-is-long-enough", trusted_proxies=("10.0.0.1",)))
    said = {"Origin": "https://fleet.example.com", "X-Forwarded-Host": "fleet.example.com"}
    assert client.get("/livez", headers=said).status_code == 200
    assert client.get("/livez", headers={**said, "X-Forwarded-Host": "other.example.com"}).status_code == 403
    assert proxied(client, "10.0.0.2").get("/livez", headers=said).status_code == 403


def test_root_path(open_client):
    client = open_client(root_path="/ever/learn")
    for prefix in ("", "/ever/learn"):  # some proxies take it off, some do not
        assert client.get(f"{prefix}/livez").json()["status"] == "ok"
        assert client.post(f"{prefix}/models/m/learn", json={"rows": [[1.0]]}).status_code == 202
        assert client.get(f"{prefix}/").text.startswith("<!doctype html>")
    moved = client.get("/ever/learn", follow_redirects=False)
    assert (moved.status_code, moved.headers["location"]) == (308, "/ever/learn/")
    assert client.get("/openapi.json").json()["servers"] == [{"url": "/ever/learn"}]
    assert client.get("/ever/learning/livez").status_code == 404


def test_the_page_names_nothing_by_an_absolute_path(client):
    page = client.get("/").text
    assert 'href="/' not in page
    assert 'src="/' not in page
