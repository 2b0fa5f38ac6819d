"""A real browser for all tests here: Debian's Chromium, through Playwright.

Where one of them is missing the tests are skipped, or fail if everything is required.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT = 60_000  # milliseconds that a loaded machine may need

sys.path.insert(0, str(Path(__file__).parent.parent))


def chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser")


def missing():
    """What is not there, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is missing: pip install 'pyroute-core[dev]'"
    if chromium() is None:
        return "Chromium is missing: apt install chromium"
    return None


if missing() is not None and os.environ.get("PYROUTE_REQUIRE") != "all":
    collect_ignore_glob = ["test_*.py"]
    print(f"tests/browser: skipped: {missing()}", file=sys.stderr)


@pytest.fixture(scope="session")
def browser():
    assert missing() is None, missing()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium(), headless=True, args=FLAGS)
        yield made
        made.close()


class Watched:
    """A page of the browser, and everything that it asked for or complained of."""

    def __init__(self, page):
        self.page, self.requests, self.errors = page, [], []
        page.set_default_timeout(WAIT)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("requestfailed", lambda request: self.requests.append(request.url))
        page.on(
            "console",
            lambda message: (
                self.errors.append(message.text) if message.type in ("error", "warning") else None
            ),
        )

    def open(self, url):
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready]", state="attached")
        return self.page

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()


@pytest.fixture
def watch(browser):
    """Makes watched pages; at the end no error was seen and nothing left the machine."""
    made = []

    def new(**options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        made.append(Watched(context.new_page()))
        return made[-1]

    yield new
    for watched in made:
        assert watched.errors == []
        for url in watched.requests:
            assert url.startswith(("file://", "data:", "http://127.0.0.1:", "blob:")), url
        watched.page.context.close()
