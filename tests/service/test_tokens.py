"""Tokens by name: what each may do, how often, and what is wrong with a file of them."""

import pytest

from everlearn.errors import InputError
from everlearn.service.settings import Settings, Token, read_tokens

READ, WRITE, SLOW = "read-only-secret-of-some-length", "read-write-secret-of-some-length", "slow-secret-of-some-length"
TOKENS = (Token("grafana", READ, "read"), Token("gateway", WRITE), Token("slow", SLOW, "write", 1.0))


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def test_what_each_may_do(open_client):
    client = open_client(tokens=TOKENS)
    rows = {"rows": [[1.0, 2.0]]}
    assert client.post("/models/m/learn", json=rows, headers=bearer(WRITE)).status_code == 202
    assert client.post("/models/m/learn", json=rows, headers=bearer(READ)).status_code == 403
    assert client.delete("/models/m", headers=bearer(READ)).status_code == 403
    assert client.get("/models", headers=bearer(READ)).status_code == 200
    assert client.get("/metrics", headers=bearer(READ)).status_code == 200
    assert client.get("/metrics", headers=bearer(f"{READ}x")).status_code == 401
    assert client.get("/metrics").status_code == 401


def test_rates_belong_to_a_token(open_client):
    client = open_client(tokens=TOKENS)
    statuses = [client.get("/models", headers=bearer(SLOW)) for _ in range(5)]
    refused = next(answer for answer in statuses if answer.status_code == 429)
    assert "1 per second" in refused.json()["detail"]
    assert int(refused.headers["retry-after"]) >= 1
    assert client.get("/models", headers=bearer(WRITE)).status_code == 200


def test_file_of_tokens(tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text(f"# name may token rate\n\ngrafana read {READ}\ngateway  write\t{WRITE} 2000\n")
    assert read_tokens(path) == (Token("grafana", READ, "read"), Token("gateway", WRITE, "write", 2000.0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no token"),
        (f"grafana {READ}", "line 1: write NAME"),
        (f"grafana admin {READ}", "write read or write"),
        ("grafana read short", "at least 16"),
        (f"grafana read {READ} fast", "line 1: the rate of 'grafana'"),
        (f"grafana read {READ} -1", "above 0"),
        (f"gra/fana read {READ}", "no name for a token"),
    ],
)
def test_bad_files_of_tokens(tmp_path, text, words):
    path = tmp_path / "tokens.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read_tokens(path)
    assert READ not in str(caught.value)


def test_settings_check_their_tokens():
    with pytest.raises(InputError, match="token for changes"):
        Settings(tokens=(Token("a", READ, "read"),))
    with pytest.raises(InputError, match="are the same"):
        Settings(tokens=(Token("a", READ), Token("b", READ)))
    with pytest.raises(InputError, match="same name"):
        Settings(token=WRITE, tokens=(Token("token", READ),))
    assert READ not in repr(Settings(tokens=(Token("a", READ),)))
