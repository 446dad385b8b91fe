"""The live page in a real Chromium, against a running service."""

import functools
import http.server
import json
import re
import shutil
import threading
import time

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from everlearn.datasets.demo import COLUMNS, demo_stream
from service_tools import Service, as_json, learned

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
)
TOKEN = "a-token-that-is-long-enough"

pytestmark = [
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="chromium and chromium-driver are not installed: .ci/install-system-packages"
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with two models."""
    service = Service(tmp_path_factory.mktemp("state") / "run.db")
    with service.client() as client:
        send(client, demo_stream(1000, seed=1, batch_rows=500))
        send(client, demo_stream(600, seed=1, batch_rows=300), name="other")
    yield service
    service.kill()


def until(browser, condition, seconds=120):
    return WebDriverWait(browser, seconds, poll_frequency=0.1).until(lambda driver: condition(driver))


def text(browser, name):
    return browser.find_element(By.ID, name).text


def points(browser, picture, trace):
    """x of a drawn trace, asked of plotly itself."""
    script = "return document.getElementById(arguments[0]).data?.find(trace => trace.name === arguments[1])?.x"
    return browser.execute_script(script, picture, trace) or []


def drawn_path(browser, picture):
    """The longest curve of the drawing, as the browser has it."""
    script = (
        "return [...document.querySelectorAll(`#${arguments[0]} path.js-line`)].map(p => p.getAttribute('d') || '')"
    )
    return max(browser.execute_script(script, picture), key=len, default="")


def size(browser, width, height, scheme="light"):
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def send(client, batches, name="machine"):
    for batch in batches:
        body = {"columns": list(COLUMNS), "rows": as_json(batch.X)}
        assert client.post(f"/models/{name}/learn", json=body).status_code == 202
    return learned(client, name)


def outside_requests(browser, url):
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked = message["params"]["request"]["url"]
            if asked.startswith(("http", "ws")) and not asked.startswith(url):
                yield asked


def test_learns_live_marks_a_change_and_answers(browser, start_service):
    service = start_service()
    browser.get(service.url)
    until(browser, lambda b: "No model yet" in b.find_element(By.ID, "main").text)
    assert "/models/machine/learn" in text(browser, "example")

    stream = demo_stream(6000, seed=2, batch_rows=200)
    with service.client() as client:
        send(client, [next(stream) for _ in range(8)])
        until(browser, lambda b: text(b, "rows") == "1,600")
        until(browser, lambda b: text(b, "state") == "live")
        until(browser, lambda b: (points(b, "likelihood", "log-likelihood") or [0])[-1] == 1600)
        # Soon, while the list of the latest events still holds it.
        until(browser, lambda b: "change" in text(b, "events"))
        curve = drawn_path(browser, "likelihood")

        summary = send(client, stream)
        until(browser, lambda b: text(b, "rows") == "6,000")
        until(browser, lambda b: (points(b, "likelihood", "log-likelihood") or [0])[-1] == 6000)
        until(browser, lambda b: drawn_path(b, "likelihood") != curve)

        assert summary["changes"] > 0
        changes = [row for row in points(browser, "likelihood", "change") if row is not None]
        assert len(changes) == 2 * summary["changes"]

        answers_like_the_api(browser, client)
    assert list(outside_requests(browser, service.url)) == []
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert errors == []


def test_an_anomaly_names_its_rows_its_column_and_why(browser, start_service):
    """One that goes on in the next batch stays one line, with its last row."""
    service = start_service()
    X = np.random.default_rng(0).normal(size=(500, 2))
    X[396:406, 1] += 20.0
    with service.client() as client:
        asked = {"kind": "AnomalyDetector", "columns": ["flow", "heat"], "parameters": {"grace_period": 200}}
        client.put("/models/pump", json=asked).raise_for_status()
        for part in (X[:400], X[400:]):
            client.post("/models/pump/learn", json={"columns": ["flow", "heat"], "rows": as_json(part)})
            learned(client, "pump")
        browser.get(f"{service.url}/#pump")
        until(browser, lambda b: "heat" in text(b, "events"))
    line = next(line for line in browser.find_elements(By.CSS_SELECTOR, "#events tr") if "396" in line.text)
    assert "396 to 40" in line.text
    assert "anomaly" in line.text
    assert re.search(r"p = [0-9.e-]+: heat [0-9.]+, expected .* to .* from the others", line.text)
    assert len(browser.find_elements(By.CSS_SELECTOR, '#events [data-anomaly="396"]')) == 1
    until(browser, lambda b: text(b, "score") == "mean log p-value")
    until(browser, lambda b: 396 in (points(b, "likelihood", "anomaly") or []))


def test_the_description_works_offline(browser, service):
    browser.get("about:blank")
    browser.get_log("performance")  # requests of the page before, to a service that is gone
    browser.get(f"{service.url}/docs")
    until(browser, lambda b: b.find_element(By.TAG_NAME, "body").get_attribute("data-ready") == "true")
    operations = browser.find_elements(By.CSS_SELECTOR, "#operations details")
    assert len(operations) > 15
    chosen = next(o for o in operations if "/models/{name}/condition" in o.text)
    chosen.find_element(By.TAG_NAME, "summary").click()
    body = chosen.find_element(By.TAG_NAME, "textarea")
    assert json.loads(body.get_attribute("value"))["target"] == "torque"
    until(browser, lambda b: "curl -X POST" in chosen.text)
    next(each for each in chosen.find_elements(By.TAG_NAME, "button") if each.text == "Send").click()
    until(browser, lambda b: "200" in chosen.find_elements(By.TAG_NAME, "pre")[-1].text)
    assert list(outside_requests(browser, service.url)) == []


def answers_like_the_api(browser, client):
    Select(browser.find_element(By.ID, "target")).select_by_value("torque")
    rpm = browser.find_element(By.CSS_SELECTOR, "#known input[data-column=rpm]")
    rpm.send_keys("600")
    until(browser, lambda b: "torque if rpm = 600" in text(b, "answer"))
    told = client.post("/models/machine/condition", json={"rows": [{"rpm": 600}], "target": "torque"}).json()
    assert f"{told['mean']:.5g} ± {told['std']:.3g}" in text(browser, "answer")
    np.testing.assert_allclose(points(browser, "density", "density"), told["x"], rtol=1e-4)
    browser.find_element(By.CSS_SELECTOR, "#ask button[type=reset]").click()
    until(browser, lambda b: "nothing else is known" in text(b, "answer"))


def test_phone_dark_keyboard_axes_and_many_models(browser, service):
    size(browser, 390, 844, "dark")
    browser.get(f"{service.url}/#machine")
    until(browser, lambda b: text(b, "rows") == "1,000")
    until(browser, lambda b: drawn_path(b, "likelihood"))
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(wide) == 0, "the page scrolls sideways on a phone"
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, ground[4:-1].split(","))) < 120, f"not dark: {ground}"
    for name in ("likelihood", "components", "weights", "density"):
        until(browser, lambda b, name=name: b.find_element(By.ID, name).get_attribute("aria-label"))

    size(browser, 1280, 1000, "light")
    Select(browser.find_element(By.ID, "axis-x")).select_by_value("rpm")
    Select(browser.find_element(By.ID, "axis-y")).select_by_value("power")
    title = "return document.getElementById('components').layout?.xaxis?.title?.text"
    until(browser, lambda b: b.execute_script(title) == "rpm")

    Select(browser.find_element(By.ID, "model")).select_by_value("other")
    until(browser, lambda b: text(b, "rows") == "600")
    assert browser.current_url.endswith("#other")
    everything_is_reached_by_keyboard(browser)


def everything_is_reached_by_keyboard(browser):
    wanted = set(
        browser.execute_script(
            "return [...document.querySelectorAll('select, input, button')].filter(e => e.offsetParent).map(e => e.id)"
        )
    )
    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(60):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(browser.switch_to.active_element.get_attribute("id"))
    assert wanted - reached == set()


def test_every_field_has_a_name_and_colours_have_contrast(browser, service):
    for scheme in ("light", "dark"):
        size(browser, 1280, 1000, scheme)
        browser.get(service.url)
        until(browser, lambda b: "vibration if" in text(b, "answer"))
        nameless = """return [...document.querySelectorAll('select, input, button, output, [role=img]')]
            .filter(e => e.offsetParent && !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label')))
            .map(e => e.outerHTML.slice(0, 80))"""
        assert browser.execute_script(nameless) == []
        for selector in ("h1", ".soft", "dd", "#state", "td", "button", "select"):
            assert contrast(browser, selector) >= 4.5, (scheme, selector)


def contrast(browser, selector):
    """Contrast of an element's text with what is behind it, as WCAG defines it."""
    script = """
      const element = document.querySelector('#live ' + arguments[0]) || document.querySelector(arguments[0]);
      let ground = element;
      while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
      return [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor]"""
    levels = []
    for colour in browser.execute_script(script, selector):
        rgb = np.array([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) / 255
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        levels.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(levels) + 0.05) / (min(levels) + 0.05)


def test_the_token_is_asked_for_and_a_lost_service_comes_back(browser, start_service, tmp_path):
    (tmp_path / "token.txt").write_text(TOKEN)
    service = start_service("--token-file", str(tmp_path / "token.txt"))
    with service.client() as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        send(client, demo_stream(600, seed=1, batch_rows=300))
    browser.get(service.url)
    for wrong in ("wrong", TOKEN):
        until(browser, lambda b: b.find_element(By.ID, "login").is_displayed())
        browser.find_element(By.ID, "token").send_keys(wrong, Keys.ENTER)
        time.sleep(0.5)
    until(browser, lambda b: text(b, "rows") == "600")
    service.kill()
    until(browser, lambda b: text(b, "state") in ("reconnecting", "the service does not answer"))


# -- a page of somebody else -----------------------------------------------------------------------

FOREIGN_PAGE = """<!doctype html><title>evil</title><body><form id="form" method="post" enctype="text/plain"
target="frame"><input name='{"rows": [[1.0, 2.0]], "x": "' value='"}'></form><iframe name="frame"></iframe>"""
ATTACKS = """
const url = arguments[0], done = arguments[arguments.length - 1];
const body = JSON.stringify({rows: [[1.0, 2.0]]}), headers = {"Content-Type": "application/json"};
const post = more => () => fetch(url + "/models/stolen/learn", {method: "POST", body, ...more});
const element = (kind, path) => () => new Promise((yes, no) => {
  const made = document.createElement(kind);
  made.src = url + path;
  made.onload = () => yes({ok: true});
  made.onerror = () => no("refused");
  document.body.append(made);
});
const tried = {
  "simple POST": post({}),
  "POST without reading": post({mode: "no-cors"}),
  "POST of JSON": post({headers}),
  "PUT": () => fetch(url + "/models/stolen", {method: "PUT", body: '{"columns": ["a"]}', headers}),
  "DELETE": () => fetch(url + "/models/other", {method: "DELETE"}),
  "GET": () => fetch(url + "/models"),
  "health": () => fetch(url + "/health"),
  "script": element("script", "/static/page.js"),
  "image": element("img", "/favicon.svg"),
  "events": () => new Promise((yes, no) => {
    const source = new EventSource(url + "/models/other/events");
    source.onopen = () => yes({ok: true});
    source.onerror = () => { source.close(); no("refused"); };
  }),
};
document.getElementById("form").action = url + "/models/stolen/learn";
document.getElementById("form").submit();
(async () => {
  const found = {};
  for (const [name, attack] of Object.entries(tried)) {
    try {
      const answer = await attack();
      found[name] = answer.type === "opaque" ? "opaque" : "status " + answer.status;
    } catch (error) { found[name] = "refused"; }
  }
  done(found);
})();
"""


@pytest.fixture
def foreign(tmp_path):
    """A page at another port, which is another origin."""
    (tmp_path / "index.html").write_text(FOREIGN_PAGE)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/index.html"
        server.shutdown()


def test_pages_of_other_origins_reach_nothing(browser, service, foreign):
    browser.get(foreign)
    browser.set_script_timeout(60)
    found = browser.execute_async_script(ATTACKS, service.url)
    assert len(found) == 10
    assert set(found.values()) == {"refused"}, found
    with service.client() as client:
        names = {model["name"] for model in client.get("/models").json()["models"]}
    assert "other" in names
    assert "stolen" not in names
    # The same requests of the service's own page are answered: it is the origin that was refused.
    browser.get(service.url)
    own = "const done = arguments[0]; fetch('/models').then(answer => done(answer.status), () => done(0))"
    assert browser.execute_async_script(own) == 200
