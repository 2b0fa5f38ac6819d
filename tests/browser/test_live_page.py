"""The live page in a real browser: what changes is seen, what breaks is said, and it goes on."""

import shutil

import pytest

from live_stream import BIG, Stream
from pyroute.serve import Server, Watcher, open_source


@pytest.fixture
def stream(tmp_path):
    made = Stream(tmp_path / "stream", keys=200)
    made.batch()
    made.batch()
    return made


@pytest.fixture
def server(stream):
    made = Server(Watcher([open_source(str(stream.directory))], every=0.2))
    made.start()
    yield made
    made.stop()


def loads(page):
    texts = page.locator("#loads tbody td:nth-child(2)").all_inner_texts()
    return [float(text.replace(",", "")) for text in texts]


def wait_for(page, script, argument=None):
    page.wait_for_function(script, arg=argument, timeout=60_000)


def test_a_load_changes(watch, server, stream):
    page = watch().open(server.url)
    page.wait_for_selector(".bar .pill.ok")
    page.click("#loads summary")
    before = loads(page)
    page.evaluate(
        "() => { window.changed = null; const start = performance.now();"
        " new MutationObserver(() => { window.changed ??= performance.now() - start; })"
        ".observe(document.querySelector('#loads .figure'), {childList: true, subtree: true}); }"
    )
    stream.costs = stream.costs * 7
    row = stream.batch()
    wait_for(page, "() => window.changed !== null")
    wait_for(
        page,
        "busiest => [...document.querySelectorAll('#loads tbody td:nth-child(2)')]"
        ".some(td => Math.abs(Number(td.textContent.replaceAll(',', '')) - busiest) < 1)",
        max(row["loads"]),
    )
    assert loads(page) != before
    assert page.locator("#loads details").get_attribute("open") is not None  # stays open
    assert "batch 2" in page.locator("#events li").first.inner_text()


def test_what_the_reader_did_stays(watch, server, stream):
    page = watch().open(server.url)
    page.click("#keys summary")
    page.locator("#keys th button").nth(2).click()
    page.locator("#keys th button").nth(2).click()
    page.fill("#search", str(BIG))
    page.keyboard.press("Enter")
    page.locator("#loads .mark").first.focus()
    held = page.evaluate("document.activeElement.getAttribute('data-id')")
    version = page.get_attribute("html", "data-version")
    stream.costs = stream.costs[::-1].copy()
    stream.batch()
    wait_for(page, "v => document.documentElement.dataset.version !== v", version)
    wait_for(page, "() => document.querySelector('#events').textContent.includes('batch 2')")
    assert page.locator("#keys th").nth(2).get_attribute("aria-sort") == "ascending"
    assert page.evaluate("document.activeElement.getAttribute('data-id')") == held
    assert page.locator("#moves .mark").count() >= 1  # keys moved, and the page says which


def test_exact_keys(watch, server):
    page = watch().open(server.url)
    page.fill("#search", "1152921504606846977")
    assert page.locator("#found b").all_inner_texts() == ["1152921504606846977"]


def test_a_store_that_goes_and_comes(watch, server, stream):
    page = watch().open(server.url)
    page.wait_for_selector(".sources .good")
    shutil.move(stream.directory, f"{stream.directory}.away")
    page.wait_for_selector(".sources .bad")
    assert "no such directory" in page.locator(".sources").inner_text()
    assert page.locator("#loads .mark").count() >= 4  # what was known is still shown
    shutil.move(f"{stream.directory}.away", stream.directory)
    page.wait_for_selector(".sources .good")


def test_a_server_that_goes_and_comes(watch, server, stream, browser):
    watched = watch()
    page = watched.open(server.url)
    page.wait_for_selector(".bar .pill.ok")
    server.stop()
    page.wait_for_selector(".bar .pill.warning")
    again = Server(Watcher([open_source(str(stream.directory))], every=0.2), port=server.port)
    again.start()
    try:
        page.wait_for_selector(".bar .pill.ok")
        stream.batch()
        wait_for(page, "() => document.querySelector('#events').textContent.includes('batch 2')")
    finally:
        again.stop()
    # The browser itself complains of the lost connection; nothing else may have.
    watched.errors = [text for text in watched.errors if "net::ERR" not in text]


def test_token(watch, stream):
    server = Server(Watcher([open_source(str(stream.directory))], every=0.2), token="secret")
    server.start()
    try:
        page = watch().open(server.url)
        assert "token" not in page.url
        page.wait_for_selector(".bar .pill.ok")  # the cookie opens the events too
    finally:
        server.stop()
