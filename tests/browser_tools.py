"""A real Chromium for tests: its size, what it shows, and the colours of its screenshots."""

import base64
import shutil
import struct
import zlib

import numpy as np
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")


def open_browser(folder):
    """A browser with a profile of its own in a folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


def size(browser, width, height, scheme="light"):
    """Show pages in this size, light or dark."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def until(browser, condition, seconds=120):
    """Wait for a condition on the browser; returns what it gave."""
    return WebDriverWait(browser, seconds, poll_frequency=0.1).until(lambda driver: condition(driver))


def screenshot(browser, x, y, width, height):
    """Colours (height, width, 3) of a part of the whole page, in CSS pixels from its upper left corner."""
    clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
    asked = {"format": "png", "clip": clip, "captureBeyondViewport": True}
    return decoded_png(base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", asked)["data"]))


def shot_of(browser, element):
    """Colours of an element."""
    place = "const r = arguments[0].getBoundingClientRect(); return [r.x + scrollX, r.y + scrollY, r.width, r.height]"
    return screenshot(browser, *browser.execute_script(place, element))


def decoded_png(data):
    """Colours (height, width, 3) of a PNG file of eight bits a channel, without interlacing."""
    place, packed, header = 8, b"", None
    while place < len(data):
        (length,), kind = struct.unpack(">I", data[place : place + 4]), data[place + 4 : place + 8]
        part = data[place + 8 : place + 8 + length]
        header, packed = (part if kind == b"IHDR" else header), packed + (part if kind == b"IDAT" else b"")
        place += 12 + length
    width, height, bits, colour = struct.unpack(">IIBB", header[:10])
    assert bits == 8, f"{bits} bits a channel"
    n = {2: 3, 6: 4}[colour]
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + n * width)
    above = np.zeros(n * width, np.int64)
    found = np.empty((height, n * width), np.uint8)
    for y, line in enumerate(lines):
        above = _unfiltered(int(line[0]), line[1:].astype(np.int64), above, n)
        found[y] = above
    return found.reshape(height, width, n)[:, :, :3]


def _unfiltered(method, line, above, n):
    """One line of a PNG: none, left, above, their average, or Paeth's choice was taken off."""
    if method == 0:
        return line
    if method == 2:
        return (line + above) % 256
    found = np.zeros_like(line)
    for i in range(len(line)):
        left, up, corner = (found[i - n] if i >= n else 0), above[i], (above[i - n] if i >= n else 0)
        guess = left + up - corner
        paeth = min((left, up, corner), key=lambda value: abs(guess - value))
        found[i] = (line[i] + {1: left, 3: (left + up) // 2, 4: paeth}[method]) % 256
    return found
