"""Reports: what they say is what the plan says, and the file is safe, small and whole."""

import html.parser
import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from pyroute import report
from pyroute.report import writer
from pyroute.report.model import visible

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>&amp;'\"`${x}",
    "\x00\x1b[31m\u202eevil\u2028line\u2029",
    "\ud800 alone",
    "",
    " ",
    "-->",
    "<img src=x onerror=alert(1)>",
]


def example(keys=600, tasks=6, seed=0, **options):
    rng = np.random.default_rng(seed)
    names = [f"user{i}" for i in range(keys)]
    costs = rng.zipf(1.3, keys).astype(float).clip(max=4000)
    snapshot = pr.Snapshot(names, costs, rng.integers(1, 1000, keys))
    return pr.rebalance(snapshot, pr.Router(tasks), **{"max_imbalance": 0.02, **options})


class Elements(html.parser.HTMLParser):
    """Every element of a page, and the text of its data."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.data, self._in = [], "", False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._in = ("id", "pyroute-data") in attrs

    def handle_data(self, data):
        if self._in:
            self.data += data

    def handle_endtag(self, tag):
        self._in = False


def data_of(text):
    return json.loads(Elements(text).data)


def test_plan_is_told():
    plan = example()
    page = report.build("x", plan=plan)
    assert [float(row.before) for row in page.tasks] == plan.loads_before.tolist()
    assert [float(row.after) for row in page.tasks] == plan.loads_after.tolist()
    assert sum(flow.keys for flow in page.flows) == len(plan.migrations) == len(page.moves)
    assert sum(flow.state_size for flow in page.flows) == plan.migration_cost
    assert sum(move.state_size for move in page.moves) == plan.migration_cost
    moved = {value: (str(a), str(b)) for value, a, b, _ in plan.migrations}
    for move in page.moves:
        assert moved[move.key.text] == (move.source, move.target)
    for key in page.hot_keys:
        value = key.key.text
        if value in moved:
            assert (key.task, key.target) == moved[value]
        else:
            assert key.task == str(plan.router.route([value])[0])
    certificate = page.certificate
    assert certificate.imbalance_after == plan.imbalance
    assert certificate.feasible == plan.feasible


def test_hot_keys_are_exact_without_a_sketch():
    plan = example()
    page = report.build("x", plan=plan)
    order = np.argsort(-plan.snapshot.costs, kind="stable")
    assert [key.count for key in page.hot_keys] == plan.snapshot.costs[order].tolist()
    assert sum(key.share for key in page.hot_keys) == pytest.approx(1)


def test_sketch_gives_bounds():
    sketch = pr.SpaceSaving(20)
    values = np.random.default_rng(1).zipf(1.2, 5000) % 300
    sketch.observe(values)
    page = report.build("x", top=sketch.top(), total=sketch.total)
    exact = np.bincount(values)
    assert len(page.hot_keys) == 20
    for key in page.hot_keys:
        true = exact[int(key.key.text)]
        assert key.count - key.error <= true <= key.count
        assert key.share == key.count / 5000


def test_plan_from_json_is_enough():
    plan = example()
    again = pr.Plan.from_json(plan.to_json())
    page = report.build("x", plan=again)
    assert page.certificate == report.build("x", plan=plan).certificate
    assert page.hot_keys == ()  # a plan in a file has no costs
    page = report.build("x", plan=again, snapshot=plan.snapshot)
    assert len(page.hot_keys) == 600


def test_drained_and_split_are_told():
    plan = example(drained=[1], max_imbalance=0.5)
    assert [row.closed for row in report.build("x", plan=plan).tasks].index(True) == 1
    snapshot = pr.Snapshot(["hot", "a", "b"], [90.0, 5.0, 5.0])
    router = pr.Router(3)
    plan = pr.rebalance(snapshot, router, mergeable=True)
    assert "split over tasks" in report.build("x", plan=plan).hot_keys[0].note
    again = pr.rebalance(snapshot, router.apply(plan), mergeable=True)  # a router with splits
    assert report.build("x", plan=again).hot_keys[1].task is not None


def test_intervals_give_heat_and_lines():
    intervals = [
        report.Interval(
            f"t{i}", {0: 1.0 + i, 1: 1.0, 7: 1.0}, migrated_bytes=i * 10, expected_imbalance=0.1
        )
        for i in range(5)
    ]
    page = report.build("x", intervals=intervals)
    assert page.heat.tasks == ("0", "1", "7")
    assert page.heat.loads[0] == (1.0, 2.0, 3.0, 4.0, 5.0)
    (measured, promised) = page.series[0].lines
    assert measured.values[4] == pytest.approx(5 * 3 / 7 - 1)
    assert promised.values == (0.1,) * 5
    assert page.series[1].lines[0].values == (0, 10, 20, 30, 40)
    assert [row.before for row in page.tasks] == [5.0, 1.0, 1.0]


def test_lines_are_called_what_they_are():
    intervals = [
        report.Interval(f"t{i}", {0: 3.0 + i, 1: 1.0}, name="by hash", others={"with plans": 0.2})
        for i in range(3)
    ]
    page = report.build("x", intervals=intervals)
    lines = {line.name: line.values for line in page.series[0].lines}
    assert list(lines) == ["by hash", "with plans"]
    assert lines["by hash"] == pytest.approx((0.5, 0.6, 4 / 3 - 4 / 6))
    assert lines["with plans"] == (0.2,) * 3
    assert page.heat.name == "by hash"
    # Loads of one interval alone are called so, wherever they stand.
    assert page.tasks_of == "t2"
    assert "in the last interval, t2" in "".join(page.headline)
    assert {fact.name: fact.detail for fact in page.facts}["busiest task"].endswith(", t2")
    assert report.build("x", plan=example(), intervals=intervals).tasks_of == ""
    assert report.build("x", loads={0: 1.0}, intervals=intervals).tasks_of == ""


def test_a_task_that_comes_and_goes():
    intervals = [report.Interval("a", {0: 1.0}), report.Interval("b", {1: 2.0})]
    assert report.build("x", intervals=intervals).heat.loads == ((1.0, None), (None, 2.0))


def test_nothing_to_say():
    page = report.build("empty")
    assert data_of(report.to_html(page))["tasks"] == []
    assert report.build("x", intervals=[]).heat is None
    empty = pr.Snapshot([], [])
    plan = pr.rebalance(empty, pr.Router(2))
    assert report.build("x", plan=plan).hot_keys == ()
    report.to_html(report.build("x", plan=plan))


def test_colocation():
    pairs = pr.TopPairs(["a", "b", "c"], ["x", "y", "z"], np.array([5, 3, 2]), np.array([0, 0, 0]))
    plan = pr.colocate(pairs, 2)
    page = report.build("x", colocation=plan)
    assert page.locality[0].in_sample == plan.locality
    assert page.locality[0].before == plan.locality_before
    assert sum(flow.keys for flow in page.flows) == sum(map(len, plan.migrations.values()))


@pytest.mark.parametrize(
    ("value", "text", "kind"),
    [
        (2**60 + 1, "1152921504606846977", "int"),
        (np.int64(-(2**63)), "-9223372036854775808", "int"),
        (None, "null", "null"),
        (True, "true", "bool"),
        (b"\x00\xff", "0x00ff", "bytes"),
        (("de", 7), "de | 7", "tuple"),
        ("", "(empty)", "str"),
        ("a\tb\n\x00\u202e", "a\\tb\\n\\x00\\u{202e}", "str"),
        ("plain text, ünïcode 漢字", "plain text, ünïcode 漢字", "str"),
    ],
)
def test_names(value, text, kind):
    assert report.name_of(value) == report.KeyName(text, kind)


@given(st.text(max_size=400))
def test_names_always_show(text):
    shown = visible(text)
    assert shown
    assert all(letter == " " or letter.isprintable() for letter in shown)
    if text and text.isprintable() and len(text) <= 300:
        assert shown == text


def hostile_page():
    plain = [value for value in HOSTILE if "\ud800" not in value]
    snapshot = pr.Snapshot(plain, np.arange(len(plain), 0, -1) * 100.0)
    return report.build(
        "</title><script>alert(1)</script>",
        subtitle=HOSTILE[0],
        plan=pr.rebalance(snapshot, pr.Router(2), max_imbalance=0),
        top=pr.TopKeys(plain, np.arange(len(plain), 0, -1) * 100, np.zeros(len(plain), np.int64)),
        warnings=[*HOSTILE, ("key ", report.KeyName(HOSTILE[0]))],
    )


def test_escaped():
    text = report.to_html(hostile_page())
    plain = Elements(report.to_html(report.build("x")))
    page = Elements(text)
    assert page.tags == plain.tags  # no key became an element
    assert text.count("</script>") == 2
    document = json.loads(page.data)
    assert document["hot_keys"][0]["key"]["text"] == HOSTILE[0]
    assert document["warnings"][:2] == HOSTILE[:2]
    assert "alert" not in re.sub(
        r'(?s)<script type="application/json".*?</script>', "", text
    ).replace("&lt;script&gt;alert(1)", "")


@given(st.text())
def test_escaped_whatever_it_is(value):
    document = {"x": [value]}
    text = writer.embedded(document)
    assert json.loads(text) == document
    assert not set("<>&'") & set(text)
    assert text.isascii()


def test_policy_allows_nothing_else():
    text = report.to_html(report.build("x"))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "connect-src" not in policy
    assert not re.findall(r"""(?:src|href)=["'](?!data:,|#)""", text)
    assert "innerHTML" not in text


def test_hidden():
    plan = example(keys=50, max_imbalance=0)
    sketch = pr.SpaceSaving(50)
    sketch.observe(plan.snapshot.values, plan.snapshot.costs.astype(int))
    giant = pr.Snapshot(["secret-giant", "b", "c"], [900.0, 5.0, 5.0])
    for page, words in (
        (report.build("x", plan=plan, top=sketch.top()), plan.snapshot.values),
        (report.build("x", plan=pr.rebalance(giant, pr.Router(3))), ["secret-giant"]),
    ):
        assert any(word in report.to_html(page) for word in words)
        text = report.to_html(page.hashed())
        for word in words:
            assert not re.search(rf"\b{word}\b", text), word
    assert data_of(text)["keys_hashed"]


def test_hashing_is_consistent_and_salted():
    page = report.build("x", plan=example(keys=50, max_imbalance=0))
    hashed = page.hashed(b"one")
    assert hashed == page.hashed(b"one")
    assert hashed != page.hashed(b"two")
    assert page.hashed() != page.hashed()
    names = {
        key.key.text: other.key.text
        for key, other in zip(page.hot_keys, hashed.hot_keys, strict=True)
    }
    assert len(set(names.values())) == len(names)
    for move, other in zip(page.moves, hashed.moves, strict=True):
        assert names[move.key.text] == other.key.text


def themes():
    """The colors of the page by theme: light, dark by the system's wish, dark by the button."""
    rules = re.findall(r":root[^{]*\{([^}]*--faint[^}]*)\}", writer.asset("page.css"))
    found = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", rule)) for rule in rules]
    return [theme for theme in found if "bg" in theme]


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], parts))


@pytest.mark.parametrize("theme", themes()[:3], ids=["light", "dark", "dark by the button"])
@pytest.mark.parametrize(
    ("text", "grounds"),
    [
        *[(name, ("card", "bg", "field")) for name in ("ink", "soft", "faint", "hot", "good")],
        ("hot", ("hot-soft",)),
        ("good", ("good-soft",)),
        ("accent", ("card", "bg")),
    ],
)
def test_small_text_can_be_read(theme, text, grounds):
    for ground in grounds:
        low, high = sorted(luminance(theme[name]) for name in (text, ground))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)


def test_bounded():
    tasks, keys = 5000, 30_000
    rng = np.random.default_rng(0)
    snapshot = pr.Snapshot([f"{i:0100d}" for i in range(keys)], rng.random(keys) * 10)
    plan = pr.rebalance(snapshot, pr.Router(tasks), max_imbalance=0.3)
    loads = {task: 123456.789 + task for task in range(tasks)}
    intervals = [report.Interval(f"2026-11-18 {i:06d}", loads, 10**9, 5) for i in range(300)]
    page = report.build("x", plan=plan, intervals=intervals)
    text = report.to_html(page)
    assert len(text.encode()) < 3_000_000
    said = " ".join(map(str, page.warnings))
    assert "tasks" in said
    assert "keys" in said
    assert sum(flow.keys for flow in page.flows) <= len(plan.migrations)


@pytest.mark.parametrize("letter", ["ж", "🦆", "a", "<"])
def test_bounded_whatever_the_names(letter):
    names = [f"{i:05d}{letter * 290}{i:05d}" for i in range(4000)]
    page = report.build(
        "x",
        hot_keys=[report.HotKey(report.name_of(name), 5.0, 0.0, 0.001) for name in names[:1000]],
        warnings=[("key ", report.name_of(names[0]))],
    )
    moves = [report.Move(report.name_of(name), "1", "2", 5.0, 10) for name in names[1000:]]
    page = replace(page, moves=tuple(moves))
    text = report.to_html(page)
    assert len(text.encode()) < 3_000_000
    data = data_of(text)
    if letter == "a":
        assert data == json.loads(json.dumps(page.document()))
        return
    # Names are shorter, and none is left out; they can still be told from each other.
    assert (len(data["hot_keys"]), len(data["moves"])) == (1000, 3000)
    shown = {row["key"]["text"] for row in (*data["hot_keys"], *data["moves"])}
    assert len(shown) == 4000
    assert "keys are shown by their first" in data["warnings"][0]
    assert data["warnings"][1][1]["text"] in shown


def test_bounded_however_many_flows():
    flows = [report.Flow(f"t{i}", f"t{i + 1}", 1, 2.0, 40_000 - i) for i in range(40_000)]
    intervals = [
        report.Interval("🦆" * 500 + str(i), {f"{'🦆' * 200}{task}": 1.5 for task in range(10)}, 5)
        for i in range(3000)
    ]
    page = report.build("🦆" * 10_000, intervals=intervals)
    page = replace(page, flows=tuple(flows))
    text = report.to_html(page)
    assert len(text.encode()) < 3_000_000
    data = data_of(text)
    said = data["warnings"][0]
    assert f"{len(data['flows']):,} of 40,000 flows between tasks" in said
    assert (
        f"of lines over time the last {len(data['series'][0]['labels']):,} of 1,500 inter" in said
    )
    assert data["flows"][0]["source"] == "t0"
    assert sum(flow["keys"] for flow in data["flows"]) == 40_000  # the others are one
    assert sum(flow["state_size"] for flow in data["flows"]) == sum(f.state_size for f in flows)


def test_atomic(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    assert report.write(report.build("first"), path) == path
    before = path.read_bytes()

    def broken(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="no space"):
        report.write(report.build("second"), path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    report.write(report.build("second"), path)
    assert data_of(path.read_text())["title"] == "second"
    assert list(tmp_path.iterdir()) == [path]


def test_write_says_where_it_cannot(tmp_path):
    with pytest.raises(IsADirectoryError, match="path: expected a file"):
        report.write(report.build("x"), tmp_path)
    with pytest.raises(FileNotFoundError):
        report.write(report.build("x"), tmp_path / "no" / "report.html")
