"""Fetches the C++ headers of Apache DataSketches into build/: `python -m bench.cpp.fetch`.

They come with the source distribution of the Python package, up to version 4.1.0; the later ones
fetch them while they build.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.1.0"
CACHE = Path(__file__).resolve().parents[2] / "build" / "bench" / f"datasketches-{VERSION}"
FOLDERS = ("fi/include", "common/include")


def fetch(into: Path = CACHE) -> Path:
    """The directory with the headers; downloads them unless they are there."""
    if (into / FOLDERS[0]).is_dir():
        return into
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", "datasketches", "--dest", folder, f"datasketches=={VERSION}"]
        subprocess.run(command, check=True)
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as source:
            source.extractall(folder, filter="data")
        for name in FOLDERS:
            shutil.copytree(Path(folder, f"datasketches-{VERSION}", name), into / name)
        for name in ("LICENSE", "NOTICE"):
            shutil.copy(Path(folder, f"datasketches-{VERSION}", name), into)
    return into


if __name__ == "__main__":
    print(fetch())
