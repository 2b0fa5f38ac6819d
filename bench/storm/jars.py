"""Jars for tests and benches: Storm's own by Maven, pyroute's, and the test topologies.

Everything is kept under build/storm and made anew only when its sources changed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODULE = ROOT / "bindings" / "storm"
BUILD = ROOT / "build" / "storm"
SHIPPED = ROOT / "pyroute" / "storm" / "data" / "pyroute-storm.jar"
VERSION = "2.8.3"


def missing() -> str | None:
    """What is not there, or None."""
    for command, package in (
        ("java", "openjdk-17-jdk-headless"),
        ("javac", "openjdk-17-jdk-headless"),
        ("mvn", "maven"),
    ):
        if shutil.which(command) is None:
            return f"{command} is missing: apt-get install {package}"
    return None


def digest(paths: Iterable[Path]) -> str:
    """A name for the contents of files."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def maven(*arguments: str) -> None:
    """Run Maven quietly; a download that breaks is tried again."""
    command = ["mvn", "-q", "-B", "-ntp", *arguments]
    for left in (2, 1, 0):
        done = subprocess.run(command, cwd=MODULE, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if not left:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout[-3000:]}{done.stderr[-3000:]}")


def storm(version: str = VERSION) -> Path:
    """The folder with all jars of a Storm cluster."""
    with locked("fetch"):
        folder = BUILD / f"lib-{version}-{digest([MODULE / 'cluster.xml'])}"
        if not folder.exists():
            fresh = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(fresh, ignore_errors=True)
            maven(
                *("-f", "cluster.xml", "dependency:copy-dependencies"),
                *(f"-DoutputDirectory={fresh}", f"-Dstorm.version={version}"),
            )
            fresh.rename(folder)
        return folder


def sources(kind: str) -> list[Path]:
    return sorted((MODULE / "src" / kind / "java").rglob("*.java"))


def pyroute() -> Path:
    """The jar of pyroute, as `make storm` makes it."""
    with locked("pyroute"):
        stamp = BUILD / "pyroute-storm.stamp"
        now = digest([*sources("main"), MODULE / "pom.xml"])
        if not SHIPPED.exists() or not stamp.exists() or stamp.read_text() != now:
            maven("package")
            SHIPPED.parent.mkdir(parents=True, exist_ok=True)
            fresh = SHIPPED.with_suffix(".new")
            shutil.copy(BUILD / "maven" / "pyroute-storm.jar", fresh)
            fresh.rename(SHIPPED)
            stamp.write_text(now)
        return SHIPPED


def topologies() -> Path:
    """A jar with the test topologies, pyroute's classes and the scripts that children run."""
    lib, own = storm(), pyroute()
    scripts = [p for p in (ROOT / "bench" / "storm" / "children").glob("*.py") if p.is_file()]
    with locked("topologies"):
        now = digest([*sources("topologies"), own, *scripts])
        target = BUILD / f"topologies-{now}.jar"
        if not target.exists():
            classes = BUILD / "test-classes"
            shutil.rmtree(classes, ignore_errors=True)
            classes.mkdir(parents=True)
            names = [str(path) for path in sources("topologies")]
            options = ["-nowarn", "-cp", f"{lib}/*:{own}", "-d", str(classes)]
            done = subprocess.run(["javac", *options, *names], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"javac: {done.stdout}{done.stderr}")
            fresh = target.with_suffix(".new")
            with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as jar:
                for path in sorted(classes.rglob("*.class")):
                    jar.write(path, path.relative_to(classes))
                with zipfile.ZipFile(own) as inner:
                    for name in inner.namelist():
                        if name.endswith(".class"):
                            jar.writestr(name, inner.read(name))
                for path in scripts:
                    jar.write(path, f"resources/{path.name}")
                [python] = lib.glob("multilang-python-*.jar")
                with zipfile.ZipFile(python) as inner:
                    for name in inner.namelist():
                        if name.startswith("resources/") and not name.endswith("/"):
                            jar.writestr(name, inner.read(name))
            fresh.rename(target)
            forget("topologies-*.jar")
        return target


def example() -> Path:
    """A jar of examples/storm as its users make it: the scripts as resources, and Flux."""
    scripts = sorted((ROOT / "examples" / "storm").glob("*.py"))
    with locked("example"):
        target = BUILD / f"example-{VERSION}-{digest(scripts)}.jar"
        if not target.exists():
            folder = BUILD / f"flux-{VERSION}"
            # One by one: the descriptor that both have in common is not published.
            for name in ("flux-core", "flux-wrappers"):
                artifact = f"-Dartifact=org.apache.storm:{name}:{VERSION}"
                maven("dependency:copy", artifact, f"-DoutputDirectory={folder}")
            fresh = target.with_suffix(".new")
            classes = {}
            for path in sorted(folder.glob("*.jar")):
                with zipfile.ZipFile(path) as inner:
                    for name in inner.namelist():
                        if name.endswith(".class") and not name.startswith("META-INF"):
                            classes[name] = inner.read(name)
            with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as jar:
                for name, data in sorted(classes.items()):
                    jar.writestr(name, data)
                for path in scripts:
                    jar.write(path, f"resources/{path.name}")
            fresh.rename(target)
            forget("example-*.jar")
        return target


def forget(pattern: str) -> None:
    """Remove what was made long ago: somebody may still run what was made before."""
    for old in BUILD.glob(pattern):
        if time.time() - old.stat().st_mtime > 86_400:
            shutil.rmtree(old) if old.is_dir() else old.unlink()


def class_path(*, local: bool) -> str:
    """Of a JVM that runs topologies; a local cluster finds scripts as files, not in a jar."""
    jar = topologies()
    if not local:
        return f"{storm()}/*:{jar}"
    folder = BUILD / f"unpacked-{jar.stem}"
    with locked("unpacked"):
        if not folder.exists():
            fresh = folder.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            with zipfile.ZipFile(jar) as archive:
                archive.extractall(fresh)
            fresh.rename(folder)
            forget("unpacked-*")
    # A LocalCluster takes the resources of the first jar that has some, and of a folder else.
    others = [str(p) for p in sorted(storm().glob("*.jar")) if "multilang-python" not in p.name]
    return ":".join([str(folder), *others])


def python_environment() -> dict[str, str]:
    """For children that run this checkout's pyroute."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


if __name__ == "__main__":  # `make storm`
    why = missing()
    if why is not None:
        sys.exit(f"storm: {why}")
    print(f"{pyroute().relative_to(ROOT)}: {SHIPPED.stat().st_size} bytes")
