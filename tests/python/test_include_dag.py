"""The folders of csrc/ depend on each other in one direction only, and torch is needed in two of them."""

import functools
import json
import os
import re
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
# What a folder's files may include, besides their own folder.
MAY_INCLUDE = {
    "core": set(),
    "graph": {"core"},
    "data": {"core", "graph"},
    "simulate": {"core", "graph"},
    "replay": {"core", "graph", "data", "simulate"},
    "calibrate": {"core", "graph", "simulate", "replay"},  # executes: docs/design/calibration.md
    "backend": {"core", "graph", "data", "replay"},
    "nccl_ext": {"core", "replay"},
}
# The same within backend.
WITHIN_BACKEND = {
    "protocol": set(),
    "recorder": set(),
    "client": {"protocol"},
    "coordinator": {"device", "emulator", "protocol"},
    "device": set(),
    "emulator": {"protocol"},
    "relay": {"coordinator", "protocol"},
    "executor": {"coordinator"},
    "c10d": {"client", "coordinator", "device", "executor", "protocol", "recorder", "relay"},
}
TORCH_ALLOWED = ("backend/c10d/", "backend/executor/")
TORCH_HEADERS = ("torch/", "ATen/", "c10/", "caffe2/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


@functools.cache
def sources() -> list[Path]:
    return sorted([*CSRC.rglob("*.hpp"), *CSRC.rglob("*.cpp")])


def relative(path: Path) -> str:
    return path.relative_to(CSRC).as_posix()


def includes(path: Path, style: str) -> list[str]:
    return [name for kind, name in INCLUDE.findall(path.read_text()) if kind == style]


def test_every_quoted_include_is_a_header_of_csrc_named_from_its_top():
    wrong = [(relative(p), name) for p in sources() for name in includes(p, '"') if not (CSRC / name).is_file()]
    assert wrong == []


def test_folders_include_only_what_stands_below_them():
    wrong = []
    for path in sources():
        folder, _, rest = relative(path).partition("/")
        if rest:  # files directly in csrc/ serve the Python modules of all folders
            allowed = MAY_INCLUDE[folder] | {folder}
            wrong += [(relative(path), n) for n in includes(path, '"') if "/" in n and n.split("/")[0] not in allowed]
    assert wrong == []


def test_folders_of_the_backend_include_only_what_stands_below_them():
    wrong = []
    for path in sources():
        top, _, rest = relative(path).partition("/")
        if top == "backend":
            folder = rest.split("/")[0]
            included = [n for n in includes(path, '"') if n.startswith("backend/")]
            allowed = WITHIN_BACKEND[folder] | {folder}
            wrong += [(relative(path), n) for n in included if n.split("/")[1] not in allowed]
    assert wrong == []


@pytest.mark.parametrize("allowed", [MAY_INCLUDE, WITHIN_BACKEND])
def test_the_allowed_dependencies_have_no_cycle(allowed):
    def reachable(folder: str) -> set[str]:
        return allowed[folder].union(*(reachable(below) for below in allowed[folder]))

    assert all(folder not in reachable(folder) for folder in allowed)


def test_torch_is_included_only_by_the_c10d_adapter_and_the_executor():
    users = {relative(p) for p in sources() if any(n.startswith(TORCH_HEADERS) for n in includes(p, "<"))}
    assert users and all(user.startswith(TORCH_ALLOWED) for user in users), users


def test_pybind11_is_included_only_where_python_modules_are_made():
    for path in sources():
        if any(name.startswith("pybind11/") for name in includes(path, "<")):
            assert re.fullmatch(r"python\w*\.(cpp|hpp)", path.name), relative(path)


def test_every_library_folder_says_in_a_readme_what_it_owns():
    folders = {p.parent for p in sources()} - {CSRC}
    missing = [relative(f) for f in sorted(folders) if not any((d / "README.md").is_file() for d in (f, f.parent))]
    assert missing == []


def test_every_source_includes_its_own_header_first_so_that_the_header_stands_alone():
    for path in sources():
        header = path.with_suffix(".hpp")
        if path.suffix == ".cpp" and header.is_file():
            every = INCLUDE.findall(path.read_text())
            assert every and every[0] == ('"', relative(header)), relative(path)


@pytest.fixture(scope="module")
def torch_free_build() -> Path:
    """The build folder that `make test-cpp` uses, brought up to date: compiling it is part of the test."""
    build = CSRC.parent / "build" / "tests"
    options = ["-DPRISM_TORCH=OFF", "-DPRISM_TESTS=ON", f"-DPython3_EXECUTABLE={sys.executable}"]
    for command in (["cmake", "-G", "Ninja", "-S", CSRC.parent, "-B", build, *options], ["cmake", "--build", build]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stdout + done.stderr
    return build


def include_folders(build: Path) -> list[Path]:
    commands = " ".join(entry["command"] for entry in json.loads((build / "compile_commands.json").read_text()))
    return [Path(folder) for folder in sorted(set(re.findall(r"(?:-I|-isystem )(\S+)", commands)))]


@pytest.mark.alone  # it compiles on all processors
def test_libraries_without_torch_compile_with_no_torch_header_in_reach(torch_free_build):
    built = {library.stem for library in torch_free_build.rglob("libprism_*.a")}
    assert {"libprism_core", "libprism_graph", "libprism_data", "libprism_replay", "libprism_backend"} <= built
    folders = include_folders(torch_free_build)
    assert CSRC in folders
    assert [folder for folder in folders for name in TORCH_HEADERS if (folder / name).exists()] == []


@pytest.mark.alone
def test_headers_without_a_source_compile_alone(torch_free_build):
    folders = include_folders(torch_free_build)
    headers = [p for p in sources() if p.suffix == ".hpp" and not p.with_suffix(".cpp").is_file()]

    def complaint(header: Path) -> str:
        name = relative(header)
        path = [*folders, *map(Path, python_folders())] if needs_python_or_torch(name) else folders
        flags = [flag for folder in path for flag in ("-isystem", str(folder))]
        compiler = os.environ.get("CXX", "c++")
        command = [compiler, "-std=c++20", "-DFMT_HEADER_ONLY=1", *flags, "-fsyntax-only", "-x", "c++", "-"]
        text = f'#include "{name}"\n'
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=300).stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        assert "".join(pool.map(complaint, headers)) == ""


def needs_python_or_torch(name: str) -> bool:
    return name.startswith(TORCH_ALLOWED) or Path(name).name.startswith("python")


def python_folders() -> list[str]:
    from torch.utils.cpp_extension import include_paths

    return [*include_paths(), sysconfig.get_path("include")]
