"""The benches on a real Storm, as far as they need none: descriptions, figures, pages."""

import json

import pytest

import pyroute as pr
from bench.peers import Scale
from bench.spark.page import section_of, with_goals
from bench.storm import (
    __main__ as runner,
)
from bench.storm import cluster, drift, growth, hashtags, hosts, keyed, page, stock, unacked, words
from bench.storm.keyed import Arm

QUICK = Scale(quick=True, seed=1)
FULL = Scale(quick=False, seed=1)


def text_of(section):
    return "\n".join(with_goals(section))


@pytest.mark.parametrize("name", runner.SECTIONS)
def test_saved_results(name):
    """What was ever measured can be shown."""
    raw = runner.saved(name)
    if raw is None:
        pytest.skip("it was not measured yet")
    assert runner.module(name).TITLE in text_of(section_of(runner.module(name).show, raw))


def test_extra_section():
    assert all(part.title for part in page.extra())


# keyed streams ----------------------------------------------------------------------------------


def row(arm, rate, turn=0, **more):
    return {
        "arm": arm.name,
        "allowed": arm.allowed,
        "turn": turn,
        "rate": rate,
        "mean": 1e6 / rate,
        "p99": 2e6 / rate,
        "plans": 3,
        "keys": 40,
        "seconds": 0.002,
        **more,
    }


def rows_of(arms, turns=3):
    return [
        row(arm, 1000.0 + 100 * place + turn, turn)
        for turn in range(turns)
        for place, arm in enumerate(arms)
    ]


def stream_of(arms):
    return {"rows": rows_of(arms), "warm": 10, "records": 20, "keys": 5, "skew": 1.5}


def test_words_page():
    shown = text_of(words.show(stream_of(words.arms(FULL))))
    assert "1.50 times the mean" in shown
    assert "Readj catches up at 0.3" in shown
    line = next(line for line in shown.splitlines() if line.startswith("| hash"))
    assert "1,001 [1,000..1,002]" in line
    assert "| 1.00 [1.00..1.00] |" in line
    # The last arm is the fastest here, at 0.3: the claim that it is Mixed at 0.02 has to fail.
    claim = next(line for line in shown.splitlines() if "best throughput of all keyed" in line)
    assert claim.endswith("no |")
    assert "Mixed, 0.3" in claim
    assert "catches" not in text_of(words.show(stream_of(words.arms(QUICK))))


def test_stock_and_drift_pages():
    shown = text_of(stock.show({stock.BURSTS: stream_of(stock.arms(QUICK))}))
    assert shown.count("2 times the throughput") == 2
    result = {f"{change:g}": stream_of(drift.ARMS) for change in drift.CHANGES}
    shown = text_of(drift.show(result))
    assert shown.count("very close to ideal") == 3
    assert "it loses 0.1 of ideal by f = 1" in shown


def test_growth_page():
    def one(arm, turn):
        seconds = [[at + 0.5, 1000 if at < 3 else 1100, 5.0] for at in range(-15, 30)]
        return {
            "arm": arm.name,
            "allowed": arm.allowed,
            "turn": turn,
            "seconds": seconds,
            "done": 2.5,
            "moving": 2.0,
            "planning": 0.01,
            "keys": 100,
            "moved": 10,
        }

    rows = [one(arm, turn) for arm in growth.ARMS for turn in range(3)]
    assert growth.level(rows[0], -10, 0) == 1000
    assert growth.until_used(rows[0]) == 4.5
    shown = text_of(growth.show({"rows": rows}))
    assert "1.10 [1.10..1.10]" in shown
    assert "10.0%" in shown


def test_descriptions(tmp_path):
    """Every arm reads what the arm before it declares, by its own grouping."""
    for arm in words.arms(FULL):
        made = keyed.description(tmp_path / "x", arm)
        parts = {part["id"]: part for part in made["components"]}
        assert set(parts) >= {"spout", "split", "count"}
        (first, *_) = parts["count"]["inputs"]
        assert first["grouping"] == keyed.GROUPINGS.get(arm.name, "direct")
        assert parts["split"]["direct"] == arm.managed
        assert ("manager" in parts) == arm.managed
        assert ("merge" in parts) == (arm.name == "PKG")
        if arm.managed:
            every = parts["manager"]["command"]
            assert every[every.index("--plan-every") + 1] == ("5" if arm.allowed else "0")
    made = keyed.description(tmp_path / "x", Arm("ring"), first=9)
    assert made["conf"]["pyroute.tasks"] == {"count": 9}
    json.dumps(made)


def test_between():
    """Throughput and latency of some records, from rows of a second each."""
    rows = [[float(at), 100 if at < 10 else 200, 1, 3.0 + at, 9, 2.0] for at in range(20)]
    assert keyed.acked(rows) == 3000
    found = keyed.between(rows, 1200, 2200)
    assert found["rate"] == pytest.approx(200)
    assert found["mean"] == pytest.approx(2.0)
    assert found["p99"] == 19.0  # of the row at 16, which has the end of it


def test_hash_of_storm():
    """`String.hashCode`, as Java's documentation defines it, over units of UTF-16."""
    assert keyed.java_hash("") == 0
    assert keyed.java_hash("ab") == 31 * 97 + 98
    assert keyed.java_hash("hello world") == 1794106052
    assert keyed.java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
    assert keyed.storm_skew(["a"] * 30 + ["b"] * 10, tasks=2) == 1.5


def test_counts_are_checked(tmp_path):
    lines = ["a", "b", "a"]
    (tmp_path / "merge-0").write_text("3\tString\ta\tcount\n1\tString\tb\tcount\n")
    (tmp_path / "merge-1").write_text("2\tString\ta\tcount\n1\tString\tb\tcount\n")
    keyed.check(tmp_path, Arm("PKG"), lines, 7)
    with pytest.raises(cluster.StormError, match="counts: expected 8"):
        keyed.check(tmp_path, Arm("PKG"), lines, 8)


def test_streams():
    assert len(set(stock.bursts(1)[:20_000])) > 500
    steady, changing = drift.lines_of(0.0, 1), drift.lines_of(1.0, 1)
    assert len(steady) == len(changing) == drift.INTERVALS * drift.RECORDS
    first = slice(0, drift.RECORDS)
    assert sorted(steady[first]) == sorted(steady[drift.RECORDS : 2 * drift.RECORDS])
    assert sorted(changing[first]) != sorted(changing[drift.RECORDS : 2 * drift.RECORDS])


# two hosts --------------------------------------------------------------------------------------


def test_hosts_page():
    rows = [
        {
            "arm": case.arm,
            "locality": case.locality,
            "padding": case.padding,
            "free": case.free,
            "rate": 50_000.0 if case.arm == "colocated" else 2000.0 + turn,
            "local": 0.5,
            "bytes": 2000.0,
            "turn": turn,
        }
        for case, times in hosts.cases(FULL)
        for turn in range(times)
    ]
    shown = text_of(hosts.show({"rows": rows}))
    assert shown.count("20,000 B") == 6 + 1
    assert "not measured" not in shown
    assert "| yes |" not in next(x for x in shown.splitlines() if "80 %: hash drops" in x)
    quick = [one for one in rows if (hosts.Case(one["arm"], one["locality"], one["padding"],
                                                one["free"]), 1) in hosts.cases(QUICK)]  # fmt: skip
    assert "not measured" in text_of(hosts.show({"rows": quick}))


def test_unacked_page(tmp_path):
    rows = [
        {"arm": case.arm, "locality": 100, "padding": case.padding, "free": case.free,
         "acked": False, "rate": {"hash": 2000.0}.get(case.arm, 50_000.0), "local": 0.5,
         "bytes": 2000.0, "turn": turn}
        for case, times in unacked.cases(FULL)
        for turn in range(times)
    ]  # fmt: skip
    shown = unacked.show({"rows": rows})
    assert [goal.met for goal in shown.goals] == [True]
    assert text_of(shown).count("4,000 B") == 3
    for acked in (True, False):
        folder = tmp_path / str(acked)
        folder.mkdir()
        made = hosts.description(folder, hosts.Case("hash", 100, acked=acked), 1)
        assert made["conf"]["topology.acker.executors"] == (2 if acked else 0)


def test_hosts_description(tmp_path):
    for arm in (*hosts.ARMS, hosts.ONE):
        folder = tmp_path / arm.replace(" ", "")
        folder.mkdir()
        made = hosts.description(folder, hosts.Case(arm, 80, 100), 1)
        assert made["conf"]["topology.workers"] == (1 if arm == hosts.ONE else 2)
        router = pr.Router.from_bytes((folder / "router0").read_bytes())
        total = 0
        for host in router.tasks:
            ins = [x.split("\t")[0] for x in (folder / f"pairs-{host}").read_text().splitlines()]
            assert set(router.route(ins)) == {host}
            total += len(ins)
        assert total == hosts.RECORDS


def test_hashtags_page(tmp_path):
    plan = hashtags.Plan(["ny", "ca", "tx", "fl"] * 50, ["#a", "#b", "#c", "#d"] * 50)
    assert plan.locality(plan.after) == 1.0
    plan.write(tmp_path, "next", plan.after)
    assert (tmp_path / "next-0").exists()
    assert (tmp_path / "next-1").exists()
    assert hashtags.rates([[0, 0, 0, 0], [2, 10, 5, 100]]) == [[5.0, 0.5, 10.0]]

    def one(setting, turn):
        link, padding, changes = setting
        before = [[1000.0 + turn, 0.5, 2000.0]] * 5
        after = [[(1000.0 + padding if changes else 1000.0), 0.7, 1000.0]] * 5
        return {
            "link": link,
            "padding": padding,
            "changes": changes,
            "turn": turn,
            "before": before,
            "during": before[:1],
            "after": after,
        }

    rows = [
        one(setting, turn) for setting, times in hashtags.settings(FULL) for turn in range(times)
    ]
    shown = text_of(hashtags.show({"rows": rows, "records": 9, "locality": [0.5, 0.7]}))
    grows = [line for line in shown.splitlines() if "the gain grows" in line]
    assert len(grows) == 2
    assert all(line.endswith("yes |") for line in grows)
    slower = next(line for line in shown.splitlines() if "slower link" in line)
    assert slower.endswith("no |")
