"""kill -9 in the middle of requests: nothing acknowledged is lost, nothing is learned twice."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from service_tools import as_json, http_client, learned

pytestmark = pytest.mark.slow

KILLS = 3
SENDERS = 4


class Sender:
    """Sends numbered batches until each is acknowledged, again with the same key after every failure."""

    def __init__(self, number):
        self.number = number
        self.acknowledged = 0
        self.answered = True

    def run(self, address, stop):
        with http_client() as client:
            while not (self.answered and stop.is_set()):
                self._send(client, address["url"])

    def _send(self, client, url):
        rows = np.tile([self.number, self.number + self.acknowledged], (7, 1))
        try:
            answer = client.post(
                f"{url}/models/m/learn",
                json={"columns": ["sender", "batch"], "rows": as_json(rows)},
                headers={"Idempotency-Key": f"sender {self.number}, batch {self.acknowledged}"},
            )
        except (httpx.TransportError, OSError):
            self.answered = False
            time.sleep(0.02)
            return
        assert answer.status_code == 202, answer.text
        self.answered = True
        self.acknowledged += 1


def test_kills_lose_nothing_and_repeat_nothing(start_service):
    service = start_service()
    address, stop = {"url": service.url}, threading.Event()
    senders = [Sender(i) for i in range(SENDERS)]
    rng = np.random.default_rng(0)
    with ThreadPoolExecutor(SENDERS) as pool:
        running = [pool.submit(sender.run, address, stop) for sender in senders]
        try:
            for _ in range(KILLS):
                before = sum(sender.acknowledged for sender in senders)
                while sum(sender.acknowledged for sender in senders) < before + 20:
                    time.sleep(0.005)
                time.sleep(rng.uniform(0.0, 0.3))
                service.kill()
                service = start_service()
                address["url"] = service.url
        finally:
            stop.set()
        for each in running:
            each.result()
    counts = [sender.acknowledged for sender in senders]
    with service.client() as client:
        summary = learned(client, "m")
    n = 7 * sum(counts)
    assert summary["rows"] == n
    means = {column["name"]: column["mean"] for column in summary["columns"]}
    expected = sum(7 * sum(i + b for b in range(c)) for i, c in enumerate(counts)) / n
    assert np.isclose(means["sender"], sum(7 * i * c for i, c in enumerate(counts)) / n)
    assert np.isclose(means["batch"], expected)


def test_rows_left_in_the_inbox_are_learned_at_the_next_start(start_service, state):
    from everlearn.streams.store.store import Store

    service = start_service()
    with service.client() as client:
        client.put("/models/m", json={"columns": ["u", "v"]})
    service.kill()
    with Store(state) as store:
        store.put([("m", np.ones((5, 2))), ("m", np.zeros((6, 2)))])
    with start_service().client() as client:
        assert learned(client, "m")["rows"] == 11
