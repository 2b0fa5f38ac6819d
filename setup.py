"""Builds the extension modules: csrc/ compiled once, linked into every module of bindings/.

bindings/*.cpp becomes pyroute._core (pybind11), bindings/NAME.pyx becomes pyroute._NAME (Cython).

Environment:
  PYROUTE_WERROR=1                      warnings in csrc/ and bindings/ are errors
  PYROUTE_SANITIZE=address,undefined    sanitizers; objects of their own, never in place
  PYROUTE_JOBS=N                        compilers at a time; default: the number of processors
"""

import os
import re
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pybind11
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)  # every path below is relative to the root, and so are the paths in the sdist

SANITIZE = os.environ.get("PYROUTE_SANITIZE", "")
JOBS = int(os.environ.get("PYROUTE_JOBS") or os.cpu_count() or 1)
OBJECTS = Path(
    "build",
    "sanitize" if SANITIZE else "",
    f"objects-{sysconfig.get_platform()}-{sys.implementation.cache_tag}",
)

KERNELS = sorted(Path("csrc").rglob("*.cpp"))
HEADERS = sorted(
    p
    for folder in ("csrc", "bindings")
    for p in Path(folder).rglob("*")
    if p.suffix in (".hpp", ".inc")
)
CYTHON = sorted(Path("bindings").glob("*.pyx"))
BINDINGS = sorted(p for p in Path("bindings").glob("*.cpp") if p.with_suffix(".pyx") not in CYTHON)

# Never -march: a wheel runs on every processor, and kernels choose their instructions at run time.
FLAGS = ["-std=c++20", "-fvisibility=hidden", "-ffp-contract=off", "-pthread", "-Icsrc"]
LINK = ["-pthread"]
if SANITIZE:
    FLAGS += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    FLAGS += ["-O1", "-g", "-UNDEBUG"]
    LINK += [f"-fsanitize={SANITIZE}"]
else:
    FLAGS += ["-O3", "-g0", "-DNDEBUG"]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion"]
WERROR = ["-Werror"] if os.environ.get("PYROUTE_WERROR") == "1" else []
# -isystem: the warnings are about our own code.
FOREIGN = [sysconfig.get_path("include"), pybind11.get_include(), np.get_include()]
PYTHON = ["-Ibindings", *(flag for path in FOREIGN for flag in ("-isystem", path))]

# A Python from elsewhere may name the compiler of the machine that built it.
for variable, command in (("CC", "cc"), ("CXX", "c++")):
    if not shutil.which((sysconfig.get_config_var(variable) or command).split()[0]):
        os.environ.setdefault(variable, command)


@cache
def includes(path: Path) -> list[Path]:
    """The headers of ours that the file names."""
    names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE)
    folders = (path.parent, Path("csrc"), Path("bindings"))
    paths = (Path(os.path.normpath(folder / name)) for name in names for folder in folders)
    return [path for path in paths if path.is_file()]


def dependencies(source: Path) -> set[Path]:
    """The file and every header of ours that it includes, directly or not."""
    found, todo = set(), [source]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += includes(path)
    return found


class BuildExt(build_ext):
    def finalize_options(self) -> None:
        super().finalize_options()
        if SANITIZE and self.inplace:
            raise SystemExit("PYROUTE_SANITIZE: expected a build directory, got --inplace")
        # A fixed place, also for pip: an editable install then reuses the objects of `make build`.
        self.build_temp = str(OBJECTS)

    def build_extensions(self) -> None:
        # Some Pythons (conda's) hand their own -march on to extensions.
        for attribute in ("compiler_so", "compiler_so_cxx"):
            command = getattr(self.compiler, attribute)
            command = [x for x in command if not x.startswith(("-march=", "-mtune=", "-mcpu="))]
            self.compiler.set_executable(attribute, command)
        self.compiler.set_include_dirs([])  # kernels never see the headers of Python

        generated = {}
        for source in CYTHON:
            name = f"pyroute._{source.stem}"
            [module] = cythonize(
                [Extension(name, [str(source)], language="c++")],
                build_dir=str(OBJECTS),
                compiler_directives={"language_level": 3},
                quiet=True,
            )
            generated[name] = Path(module.sources[0])

        jobs = [(source, [*FLAGS, *WARNINGS, *WERROR]) for source in KERNELS]
        jobs += [(source, [*FLAGS, *PYTHON, *WARNINGS, *WERROR]) for source in BINDINGS]
        jobs += [(source, [*FLAGS, *PYTHON, "-w"]) for source in generated.values()]
        with ThreadPoolExecutor(JOBS) as pool:
            objects = dict(pool.map(lambda job: (job[0], self.compile(*job)), jobs))

        library = OBJECTS / "libpyroute_kernels.a"
        kernels = [objects[source] for source in KERNELS]
        if kernels and (not library.exists() or newest(kernels) > library.stat().st_mtime_ns):
            library.unlink(missing_ok=True)  # ar would keep the members whose source is gone
            names = [str(kernel) for kernel in kernels]
            self.compiler.create_static_lib(names, "pyroute_kernels", str(OBJECTS))
        self.parts = {"pyroute._core": [objects[source] for source in BINDINGS]}
        self.parts |= {name: [objects[source]] for name, source in generated.items()}
        self.library = [library] if kernels else []
        super().build_extensions()

    def compile(self, source: Path, flags: list[str]) -> Path:
        """Compile the source unless its object is newer than all it was made from."""
        folder = "" if source.is_relative_to(OBJECTS) else str(OBJECTS)
        [name] = self.compiler.object_filenames([str(source)], output_dir=folder)
        target, stamp = Path(name), Path(f"{name}.flags")
        command = " ".join([*self.compiler.compiler_so_cxx, *flags])
        fresh = (
            target.exists()
            and stamp.exists()
            # What compiled with warnings as errors is as good without.
            and stamp.read_text() in (command, f"{command} -Werror")
            and newest(dependencies(source)) <= target.stat().st_mtime_ns
        )
        if self.force or not fresh:
            stamp.unlink(missing_ok=True)
            self.compiler.compile([str(source)], output_dir=folder, extra_postargs=flags)
            stamp.write_text(command)
        return target

    def build_extension(self, ext: Extension) -> None:
        self.compiler.link_shared_object(
            [str(part) for part in self.parts[ext.name] + self.library],
            self.get_ext_fullpath(ext.name),
            extra_postargs=LINK,
            target_lang="c++",
        )


def newest(paths) -> int:
    return max(path.stat().st_mtime_ns for path in paths)


def extension(name: str, sources: list[Path]) -> Extension:
    names, depends = [str(source) for source in sources], [str(header) for header in HEADERS]
    return Extension(f"pyroute._{name}", names, depends=depends, language="c++")


setup(
    ext_modules=[
        extension("core", KERNELS + BINDINGS),
        *(extension(source.stem, [source]) for source in CYTHON),
    ],
    cmdclass={"build_ext": BuildExt},
)
