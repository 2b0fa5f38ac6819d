"""Makes the pictures of docs/images: ``python tests/browser/pictures.py``, in a real Chromium."""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from pages import full
from playwright.sync_api import sync_playwright

from conftest import FLAGS, chromium
from live_stream import Control, Stream
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


def live_control(path):
    """Three workers, one of them slow for a while, with what was forecast and decided."""
    control, random = Control(path), np.random.default_rng(5)
    slow, begun = 1.0, 1_750_000_000.0
    for turn in range(90):
        slow += ((4.0 if 40 <= turn < 65 else 1.0) - slow) * 0.4
        times = {f"w{n}": 5.0 + 0.4 * random.random() for n in range(3)}
        times["w2"] *= slow
        control.turn(begun + turn, times)
        said = {name: each * (1 + 0.06 * random.standard_normal()) for name, each in times.items()}
        control.foretell(begun + turn, said)
    even = dict.fromkeys([f"w{n}" for n in range(3)], 1.0)
    control.decide(1, {**even, "w2": 0.25}, "w2 3.9x the time")
    control.decide(2, even, "all alike")
    control.decide(3, {**even, "w2": 0.3}, "w2 3.3x the time")
    return control


def main():
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        report.write(full(), folder / "report.html")
        os.chdir(folder)  # so that the page shows no path of this machine
        live_stream("stream")
        server = Server(Watcher([open_source("spark:stream")], title="wordcount"))
        server.start()
        control = live_control("control.db")
        other = Server(Watcher([open_source("control:control.db")], title="urls/spout->count"))
        other.start()
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
        take(other.url, "live-control.png", "forecast", height=1000)
        browser.close()
        server.stop()
        other.stop()
        control.connection.close()
    for path in sorted(IMAGES.glob("*.png")):
        print(f"{path.name}: {path.stat().st_size // 1024} KB", file=sys.stderr)


if __name__ == "__main__":
    main()
