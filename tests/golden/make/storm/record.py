"""Transcripts of Storm's own ShellBolt: python record.py OUTPUT [VERSION ...].

Needs Java, javac and Maven. Writes OUTPUT/VERSION.bin, all bytes that a child of that version's
ShellBolt reads, and VERSION.json, which says where each message begins, which values it carries,
and what that version's serializer reads in the answers of a child. Refuses to overwrite.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
END = b"\nend\n"
ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
# storm-core 1.x carries most of what it needs, and not all that it names can be fetched.
VERSIONS = {
    "1.2.4": [
        ("org.apache.storm", "storm-core", "1.2.4", ALONE),
        ("com.googlecode.json-simple", "json-simple", "1.1.1", ALONE),
        ("org.clojure", "clojure", "1.7.0", ALONE),
        ("io.dropwizard.metrics", "metrics-core", "3.1.0", ALONE),
        ("org.slf4j", "slf4j-api", "1.7.36", ALONE),
    ],
    "2.5.0": [("org.apache.storm", "storm-client", "2.5.0", "")],
    "2.8.3": [("org.apache.storm", "storm-client", "2.8.3", "")],
}


def fetch(version: str, folder: Path) -> Path:
    """The jars of a version."""
    needs = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{number}</version>{rest}</dependency>"
        for group, name, number, rest in VERSIONS[version]
    )
    (folder / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>pyroute</groupId><artifactId>recorder</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{needs}</dependencies></project>"
    )
    jars = folder / "lib"
    command = ["mvn", "-q", "-B", "-ntp", "dependency:copy-dependencies"]
    subprocess.run([*command, f"-DoutputDirectory={jars}"], cwd=folder, check=True)
    return jars


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def index(raw: bytes, expected: list[dict]) -> list[dict]:
    """Where each message lies, what kind it is, and the values that Java was given."""
    found, begin, waiting = [], 0, iter(expected)
    while begin < len(raw):
        end = raw.index(END, begin) + len(END)
        message = json.loads(raw[begin : end - len(END)])
        entry: dict = {"begin": begin, "end": end}
        if isinstance(message, list):
            entry |= {"kind": "task_ids", "tasks": message}
        elif "pidDir" in message:
            entry |= {"kind": "setup"}
        elif message["stream"] == "__heartbeat":
            entry |= {"kind": "heartbeat", "id": message["id"]}
        else:
            kind = "tick" if message["stream"] == "__tick" else "tuple"
            entry |= {"kind": kind, "id": message["id"], **next(waiting)}
        found.append(entry)
        begin = end
    assert next(waiting, None) is None
    return found


def record(version: str, output: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="recorder-", dir="/var/tmp") as name:
        folder = Path(name)
        jars = fetch(version, folder)
        source = str(HERE / "Recorder.java")
        subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", name, source], check=True)
        (folder / "run").mkdir()
        command = ["java", "-cp", f"{folder}:{jars}/*", "Recorder", name, sys.executable]
        # No variable of this machine may find its way into the recorded configuration.
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"}
        subprocess.run(
            [*command, str(HERE / "child.py")], cwd=folder / "run", check=True, env=environment
        )
        raw = (folder / "stream.bin").read_bytes()
        document = {
            "about": f"ShellBolt of Storm {version} and its JsonSerializer; see make/storm",
            "version": version,
            "messages": index(raw, lines(folder / "expected.jsonl")),
            "replies": lines(folder / "replies.jsonl"),
        }
        with (output / f"{version}.bin").open("xb") as file:
            file.write(raw)
        with (output / f"{version}.json").open("x") as file:
            file.write(dump(document))


def dump(document: dict) -> str:
    """JSON with one row per line."""
    parts = []
    for key, value in document.items():
        text = json.dumps(value)
        if isinstance(value, list):
            text = "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
        parts.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    for each in sys.argv[2:] or VERSIONS:
        record(each, Path(sys.argv[1]))
