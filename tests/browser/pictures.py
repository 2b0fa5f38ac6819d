"""Makes the pictures of docs/images: ``python tests/browser/pictures.py``, in a real Chromium."""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from pages import full
from playwright.sync_api import sync_playwright

from conftest import FLAGS, chromium
from live_stream import Stream
from pyroute import report
from pyroute.serve import Server, Watcher, open_source

IMAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "images"


def live_stream(folder):
    """A stream whose hot keys change now and then."""
    stream, random = Stream(folder, tasks=8, keys=300), np.random.default_rng(3)
    stream.costs = 400.0 / np.arange(8, 308) ** 0.8
    for batch in range(30):
        stream.costs *= 0.95 + 0.1 * random.random(300)
        if batch in (9, 20):
            stream.costs = np.roll(stream.costs, 40)
        stream.batch()
    return stream


def main():
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        report.write(full(), folder / "report.html")
        os.chdir(folder)  # so that the page shows no path of this machine
        live_stream("stream")
        server = Server(Watcher([open_source("spark:stream")], title="wordcount"))
        server.start()
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)

        def take(url, file, part=None, scheme="light", height=760):
            size = {"width": 1120, "height": height}
            page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
            page.goto(url)
            page.wait_for_selector("html[data-ready]", state="attached")
            if part:
                page.locator(f"#{part}").scroll_into_view_if_needed()
                page.locator(f"#{part}").screenshot(path=IMAGES / file)
            else:
                page.screenshot(path=IMAGES / file)
            page.close()

        url = (folder / "report.html").as_uri()
        take(url, "report.png")
        take(url, "keys.png", "keys", "dark")
        take(url, "moves.png", "moves")
        take(url, "certificate.png", "certificate")
        take(server.url, "live.png", height=860)
        browser.close()
        server.stop()
    for path in sorted(IMAGES.glob("*.png")):
        print(f"{path.name}: {path.stat().st_size // 1024} KB", file=sys.stderr)


if __name__ == "__main__":
    main()
