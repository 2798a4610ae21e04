# SPDX-License-Identifier: GPL-2.0-only
"""Compiles prism-ns3 against the headers and libraries of the package ns3; everything else is in pyproject.toml."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
VERSION = "3.44"
LIBRARIES = ("core", "network", "internet", "point-to-point", "traffic-control")


def ns3_folder() -> Path:
    try:
        found = metadata.distribution("ns3")
    except metadata.PackageNotFoundError:
        sys.exit(f"prismllm-ns3: ns3 is not installed; install it with 'pip install --no-deps ns3=={VERSION}.*'")
    if not found.version.startswith(VERSION + "."):
        sys.exit(f"prismllm-ns3: ns3 {found.version} is not supported; install ns3 {VERSION}")
    return Path(found.locate_file("ns3"))


class Compile(build_ext):
    def run(self) -> None:
        ns3, compiler = ns3_folder(), os.environ.get("CXX", "c++").split()
        inside_source = self.inplace or getattr(self, "editable_mode", False)
        package = (ROOT if inside_source else Path(self.build_lib)) / "prismllm_ns3"
        objects = Path(self.build_temp)
        for folder in (package, objects):
            folder.mkdir(parents=True, exist_ok=True)
        made = []
        try:
            for source in sorted((ROOT / "src").glob("*.cpp")):
                made.append(objects / f"{source.stem}.o")
                command = [*compiler, "-std=c++20", "-O2", "-DNDEBUG", "-Wall", "-Wextra", "-isystem", ns3 / "include"]
                subprocess.run([*command, "-c", source, "-o", made[-1]], check=True)
            # Found beside the installed package; no path of the build machine is kept.
            libraries = [f"-lns{VERSION}-{name}" for name in LIBRARIES]
            found = [f"-L{ns3 / 'lib64'}", f"-Wl,-rpath-link,{ns3 / 'lib64'}", "-Wl,-rpath,$ORIGIN/../ns3/lib64"]
            subprocess.run([*compiler, *made, "-o", package / "prism-ns3", *libraries, *found], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"prismllm-ns3: compiling failed ({error}); a compiler of C++20 is needed, g++ 12 or clang 14")

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib) / "prismllm_ns3" / "prism-ns3")]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


setup(ext_modules=[Extension("prismllm_ns3._program", sources=[])], cmdclass={"build_ext": Compile})
