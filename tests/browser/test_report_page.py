"""The report in a real browser: offline, safe, readable by mouse, keyboard and on paper."""

import re

import pages
import pytest
from pages import BIG

from pyroute import report


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write(pages.full(), path)
    return path.as_uri()


PARTS = ["loads", "keys", "heat", "time", "moves", "locality", "certificate"]


def test_everything_is_there(watch, url):
    watched = watch()
    page = watched.open(url)
    for part in PARTS:
        section = page.locator(f"#{part}")
        assert section.locator("svg").count() >= 1, part
        assert section.locator(".mark").count() >= 1, part
        assert section.locator("h2").inner_text()
        section.locator("summary").click()
        assert section.locator("tbody tr").count() >= 1, part
    assert page.locator("h1").inner_text() == "Clicks by user"
    assert len(watched.requests) == 1  # the file itself


def test_sorting(watch, url):
    page = watch().open(url)
    page.click("#loads summary")
    column = page.locator("#loads tbody td:nth-child(2)")
    header = page.locator("#loads th").nth(1)
    header.locator("button").click()
    numbers = [float(text.replace(",", "")) for text in column.all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)
    assert header.get_attribute("aria-sort") == "descending"
    header.locator("button").press("Enter")
    numbers = [float(text.replace(",", "")) for text in column.all_inner_texts()]
    assert numbers == sorted(numbers)
    assert header.get_attribute("aria-sort") == "ascending"


def numbers_of(page, part, at):
    """The rows of one of the tables under a picture, all of them, as text."""
    table = page.locator(f"#{part} details > div > div").nth(at)
    if table.locator(".more").count():
        table.locator(".more").click()
    return [tuple(row.locator("td").all_inner_texts()) for row in table.locator("tbody tr").all()]


def test_what_is_drawn_is_in_the_tables(watch, url):
    page, made = watch().open(url), pages.full()
    for summary in ("#heat summary", "#moves summary"):
        page.click(summary)
    cells = numbers_of(page, "heat", 1)
    loads = dict(zip(made.heat.tasks, made.heat.loads, strict=True))
    assert len(cells) == len(made.heat.labels) * len(made.heat.tasks)
    for label, task, load, _ in cells:
        assert float(load.replace(",", "")) == loads[task][made.heat.labels.index(label)]
    flows = {row[:2]: int(row[2].replace(",", "")) for row in numbers_of(page, "moves", 1)}
    assert flows == {(flow.source, flow.target): flow.keys for flow in made.flows}


def test_keys_sort_as_integers_of_any_size(watch, url):
    page = watch().open(url)
    page.click("#keys summary")
    page.locator("#keys .more").click()
    page.locator("#keys th button").first.click()
    keys = [int(text) for text in page.locator("#keys tbody td:first-child").all_inner_texts()]
    assert keys == sorted(keys)
    assert keys[-1] == BIG


def test_search(watch, url):
    page = watch().open(url)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("115292150460684")
    shown = page.locator("#found b").all_inner_texts()
    assert shown == [str(BIG)] == ["1152921504606846977"]  # a number of JavaScript ends in ...976
    assert "of all" in page.locator("#found span").first.inner_text()
    page.keyboard.press("Enter")
    assert page.locator("tr.lit").first.get_attribute("data-key") == str(BIG)
    assert page.locator("tr.lit").first.is_visible()
    assert page.locator(".mark.lit").count() >= 1
    page.fill("#search", "no such key")
    assert "No key of this page" in page.locator("#found p").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()
    assert str(BIG) in page.locator("body").inner_text()
    assert str(BIG - 1) not in page.content()


def test_choices(watch, url):
    page = watch().open(url)
    labels = page.locator("#loads svg text.faint")
    before = labels.all_text_contents()
    page.click("#loads .choice button:nth-child(2)")
    after = labels.all_text_contents()
    assert after != before
    assert sorted(after) == sorted(before)
    assert page.get_attribute("#loads .choice button:nth-child(2)", "aria-pressed") == "true"
    page.click("#moves .choice button:nth-child(2)")
    assert page.locator("#moves .mark").count() >= 1


def test_keyboard(watch, url):
    page = watch().open(url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        where = page.evaluate(
            "(() => { const e = document.activeElement; const s = e.closest('section');"
            " return s && e.classList.contains('mark') ? s.id : ''; })()"
        )
        if where and where not in seen:
            seen.add(where)
            label = page.evaluate("document.activeElement.getAttribute('aria-label')")
            assert label
            assert page.locator(".tip").is_visible()
            page.keyboard.press("ArrowRight")
            other = page.evaluate("document.activeElement.getAttribute('aria-label')")
            assert other != label or where == "certificate"
            page.keyboard.press("End")
            page.keyboard.press("Home")
            assert page.evaluate("document.activeElement.getAttribute('aria-label')") == label
    assert seen == set(PARTS)
    # The marks of a figure are one stop of the Tab key.
    for svg in page.locator("svg").all():
        assert svg.locator(".mark[tabindex='0']").count() <= 1


def test_named_for_those_who_do_not_see(watch, url):
    page = watch().open(url)
    for svg in page.locator("svg").all():
        assert svg.get_attribute("aria-label")
    for table in page.locator("table").all():
        assert table.locator("caption").text_content()
        assert table.locator("th:not([scope])").count() == 0
    for button in page.locator("button").all():
        assert button.text_content() or button.get_attribute("aria-label")
    assert page.get_attribute("html", "lang") == "en"
    assert page.locator("main").count() == 1
    assert page.locator("h1").count() == 1


def rgb(page, selector, name):
    text = page.evaluate(
        "([s, n]) => getComputedStyle(document.querySelector(s)).getPropertyValue(n)",
        [selector, name],
    )
    return [float(x) for x in re.findall(r"[\d.]+", text)[:3]]


def luminance(color):
    parts = [x / 255 for x in color]
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(watch, url, scheme):
    page = watch(color_scheme=scheme).open(url)
    ground = rgb(page, "body", "background-color")
    assert (luminance(ground) < 0.05) == (scheme == "dark")
    card = rgb(page, ".card", "background-color")
    assert contrast(rgb(page, "body", "color"), card) > 7
    for selector in (".about", "summary", ".facts .name", ".facts .detail", ".hero .sub"):
        assert contrast(rgb(page, selector, "color"), card) > 4.5, selector
    for selector in ("svg text.faint", "svg text.soft", "svg text"):
        assert contrast(rgb(page, selector, "fill"), card) > 4.5, selector
    assert contrast(rgb(page, "footer", "color"), ground) > 4.5
    for selector in (".headline .key", "th button"):
        behind = card if selector == "th button" else rgb(page, selector, "background-color")
        assert contrast(rgb(page, selector, "color"), behind) > 4.5, selector
    assert contrast(rgb(page, "#search", "color"), card) > 4.5
    hint = page.evaluate(
        "getComputedStyle(document.getElementById('search'), '::placeholder').color"
    )
    assert contrast([float(x) for x in re.findall(r"[\d.]+", hint)[:3]], card) > 4.5
    page.click("button.icon")  # light
    page.click("button.icon")  # dark
    assert luminance(rgb(page, "body", "background-color")) < 0.05


def test_print(watch, url):
    page = watch(color_scheme="dark").open(url)
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert rgb(page, "body", "background-color") == [255, 255, 255]
    assert page.locator(".bar").is_hidden()
    for part in PARTS:
        assert page.locator(f"#{part} table").count() >= 1
        for table in page.locator(f"#{part} table").all():
            assert table.is_visible()  # paper cannot open anything
    # Paper has the first rows of a long table and says so; nobody can press a button on it.
    (said,) = page.locator("#keys .unprinted").all_inner_texts()
    assert said.startswith("The first 100 of 300 rows")
    assert page.locator("#keys tbody tr").count() == 100
    assert page.locator("#loads .unprinted").count() == 0
    page.emulate_media(media="screen")
    assert page.locator("#keys .unprinted").is_hidden()
    page.locator("#keys .more").click()
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("#keys .unprinted").count() == 0
    assert page.locator("#keys tbody tr").count() == 300
    data = page.pdf(format="A4")
    assert data.startswith(b"%PDF")
    assert data.count(b"/Type /Page\n") + data.count(b"/Type /Page ") >= 2


def test_hostile_keys_stay_text(watch, tmp_path):
    report.write(pages.hostile(), tmp_path / "hostile.html")
    page = watch().open((tmp_path / "hostile.html").as_uri())
    for summary in page.locator("summary").all():
        summary.click()
    page.fill("#search", "script")
    assert page.locator("#found b").first.inner_text() == pages.HOSTILE[0]
    page.keyboard.press("Enter")
    assert "broken" not in page.title() or page.title().startswith("</script>")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    shown = page.locator("#keys tbody td:first-child").all_inner_texts()
    assert shown[0] == pages.HOSTILE[0]
    assert "\\x00\\u{202e}back" in shown
    assert "(empty)" in shown


def test_hashed(watch, tmp_path):
    report.write(pages.full(), tmp_path / "hashed.html", hash_keys=True)
    page = watch().open((tmp_path / "hashed.html").as_uri())
    assert "keys are hashed" in page.locator(".sub").inner_text()
    assert str(BIG) not in page.content()
    page.click("#keys summary")
    shown = page.locator("#keys tbody td:first-child").all_inner_texts()
    assert all(re.fullmatch(r"#[0-9a-f]{12}", text) for text in shown)


def test_narrow(watch, url):
    page = watch(viewport={"width": 390, "height": 800}).open(url)
    assert page.evaluate("document.documentElement.scrollWidth") <= 391
    for svg in page.locator("svg").all():
        assert svg.bounding_box()["width"] <= 390


def test_large(watch, tmp_path):
    import numpy as np

    import pyroute as pr

    random = np.random.default_rng(0)
    snapshot = pr.Snapshot(np.arange(20_000), random.random(20_000))
    plan = pr.rebalance(snapshot, pr.Router(1500), max_imbalance=0.2)
    loads = {task: float(load) for task, load in enumerate(random.random(1500))}
    intervals = [report.Interval(str(i), loads) for i in range(200)]
    report.write(report.build("Large", plan=plan, intervals=intervals), tmp_path / "large.html")
    page = watch().open((tmp_path / "large.html").as_uri())
    assert page.locator("#loads .mark").count() == 1500
    assert page.locator("#heat .mark").count() <= 120 * 64


def test_nothing_to_show(watch, tmp_path):
    report.write(report.build("Nothing"), tmp_path / "empty.html")
    page = watch().open((tmp_path / "empty.html").as_uri())
    assert page.locator("section").count() == 0
    assert page.locator("h1").inner_text() == "Nothing"
