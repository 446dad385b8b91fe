"""Every page of the built site, opened in a browser without a network."""

import shutil
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="chromium and chromium-driver are not installed: .ci/install-system-packages"
)
# A proxy that nobody listens on: what a page fetches from another machine fails, and is an error in the console.
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--allow-file-access-from-files",
    "--proxy-server=127.0.0.1:9", "--window-size=1280,900",
)  # fmt: skip
# Advice of the browser on how a library draws, and about a machine without a graphics card: not on the page.
ADVICE = ("software WebGL", "GL Driver Message", "willReadFrequently")


@pytest.fixture(scope="module")
def browser(site, tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def errors(browser, page):
    """Errors and warnings in the console when a page is opened."""
    browser.get_log("browser")
    browser.get(page.as_uri())
    said = [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    return [
        entry["message"]
        for entry in said
        if entry["level"] == "SEVERE" or not any(words in entry["message"] for words in ADVICE)
    ]


def test_no_page_has_an_error(browser, pages):
    assert {page.name: said for page in pages if (said := errors(browser, page))} == {}


def test_formulas_are_drawn(browser, site):
    browser.get((site / "errata.html").as_uri())
    formulas = browser.find_elements(By.CSS_SELECTOR, "math")
    assert len(formulas) > 50
    assert all(formula.size["height"] > 5 for formula in formulas)
    assert "\\" not in formulas[0].text


def test_search_finds(browser, site):
    browser.get((site / "search.html").as_uri() + f"?q={quote('forgetting')}")
    WebDriverWait(browser, 30).until(lambda page: page.find_elements(By.CSS_SELECTOR, "#search-results li a"))
    links = browser.find_elements(By.CSS_SELECTOR, "#search-results li a")
    assert any("forgetting" in link.get_attribute("href") for link in links)


def test_an_error_is_seen(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<script>undefinedFunction()</script>")
    assert "undefinedFunction" in errors(browser, page)[0]
    page.write_text('<script src="https://example.org/x.js"></script>')
    assert "example.org" in errors(browser, page)[0]
