"""Real brokers for the tests: redis-server and mosquitto as processes, Kafka as librdkafka's mock cluster.

Run as a script, this is a mock cluster that a test can stop: it prints its address, and fills topics as told.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time

import pytest


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process=None, seconds=10.0):
    """Wait until somebody listens."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process is None or process.poll() is None, "the broker ended"
        time.sleep(0.02)
    raise AssertionError(f"nobody listens at port {port}")


@contextlib.contextmanager
def server(program, *arguments, port):
    """A broker process for as long as the block lasts."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed; .ci/brokers installs it")
    process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def redis_server(folder, port=None):
    port = port or free_port()
    with server("redis-server", "--port", str(port), "--dir", str(folder), "--save", "", port=port):
        yield port


@contextlib.contextmanager
def mosquitto(folder, port=None):
    port = port or free_port()
    settings = folder / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
    with server("mosquitto", "-c", str(settings), port=port):
        yield port


class MockKafka:
    """A cluster of one broker inside this process; it ends with the producer that made it."""

    def __init__(self, **options):
        confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
        self.producer = confluent.Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, **options})
        broker = next(iter(self.producer.list_topics(timeout=10).brokers.values()))
        self.address = f"{broker.host}:{broker.port}"

    def fill(self, topic, values):
        n_partitions = len(self.producer.list_topics(topic, timeout=10).topics[topic].partitions)
        for i, value in enumerate(values):
            self.producer.produce(topic, value, partition=i % n_partitions)
            self.producer.poll(0)
        assert self.producer.flush(30) == 0


class KafkaProcess:
    """A mock cluster in a process of its own."""

    def __init__(self):
        pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self.process.stdout.readline().strip()

    def fill(self, topic, values):
        self.process.stdin.write(json.dumps([topic, values]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "filled\n"

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.communicate()


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    kafka = MockKafka()
    say(kafka.address)
    for line in sys.stdin:
        kafka.fill(*json.loads(line))
        say("filled")
