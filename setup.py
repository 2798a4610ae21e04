"""Builds the native modules with CMake and Ninja and places them in the package; everything else is in pyproject.toml.

Each pair of Python and torch has its own build folder (build/py3.11-torch2.15.0), which an editable install, a wheel
and `make` share, so that nothing is compiled twice.
"""

import filecmp
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
# One C++ ABI per torch minor: a module serves the minor it was compiled for. First and last supported one.
OLDEST_TORCH, NEWEST_TORCH = (2, 11), (2, 15)


def torch_version() -> str:
    from importlib import metadata

    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        sys.exit(f"prismllm: torch is not installed in {sys.prefix}; install torch 2.11 to 2.15, then build again")
    if not OLDEST_TORCH <= tuple(int(part) for part in version.split(".")[:2]) <= NEWEST_TORCH:
        sys.exit(f"prismllm: torch {version} is not supported; install torch 2.11 to 2.15")
    return version.split("+")[0]


def tool(name: str) -> str:
    """The tool that pip put beside this interpreter, else the one on PATH."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if not found:
        sys.exit(f"prismllm: {name} was not found; install it with 'pip install {name}' or from your system's packages")
    return found


def parallel_jobs() -> int:
    """All cores, but no more compilers than fit in memory: a file that includes torch takes up to 2 GiB."""
    if asked := os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL"):
        return int(asked)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // (2 << 30)))


class CMakeBuild(build_ext):
    def run(self) -> None:
        python = f"py{sys.version_info.major}.{sys.version_info.minor}"
        build = ROOT / "build" / f"{python}-torch{torch_version()}"
        modules = build / "modules"
        cmake = tool("cmake")
        configure = [cmake, "-G", "Ninja", "-S", str(ROOT), "-B", str(build), "--log-level=WARNING"]
        configure += [f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", f"-DPython3_EXECUTABLE={sys.executable}"]
        configure += [f"-DPRISM_PYTHON_OUTPUT={modules}", *os.environ.get("PRISM_CMAKE_ARGS", "").split()]
        try:
            subprocess.run(configure, check=True)
            # As the Makefile has it: a build in pip's copy of the tree then finds what the tree's own build compiled.
            cached = {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
            cached["CCACHE_SLOPPINESS"] = "pch_defines,time_macros"
            command = [cmake, "--build", str(build), "-j", str(parallel_jobs())]
            subprocess.run(command, check=True, env=cached | os.environ)
        except subprocess.CalledProcessError as error:
            sys.exit(f"prismllm: the native build failed ({error.cmd[0]} exited with {error.returncode}), see above")
        inside_source = self.inplace or getattr(self, "editable_mode", False)
        package = ROOT / "python" / "prismllm" if inside_source else Path(self.build_lib) / "prismllm"
        package.mkdir(parents=True, exist_ok=True)
        for module in sorted(modules.glob("*.so")):
            self._place(module, package / module.name)

    @staticmethod
    def _place(module: Path, target: Path) -> None:
        # Renamed into place: a process that has the old file mapped keeps it.
        if not target.exists() or not filecmp.cmp(module, target, shallow=False):
            shutil.copy2(module, target.with_suffix(".new"))
            target.with_suffix(".new").replace(target)

    def get_outputs(self) -> list[str]:
        return [str(path) for path in sorted((Path(self.build_lib) / "prismllm").glob("*.so"))]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


if platform.system() != "Linux":
    sys.exit(f"prismllm: {platform.system()} is not supported; PrismLLM runs on Linux")
# setuptools copies into build/lib* and forgets nothing: a module deleted since would still enter the wheel.
for leftover in (ROOT / "build").glob("lib*"):
    shutil.rmtree(leftover)
setup(ext_modules=[Extension("prismllm._native", sources=[])], cmdclass={"build_ext": CMakeBuild})
