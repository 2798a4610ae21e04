"""What a stranger's machine may lack is said in one line before anything is downloaded or compiled."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENOUGH_KB = 8_000_000


@pytest.fixture
def machine(tmp_path):
    """A machine that has all that the build needs; a test takes away or replaces one program."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "env", "awk", "dirname", "tail", "c++", "python3"):
        target = sys.executable if name == "python3" else shutil.which(name)
        (tools / name).symlink_to(target)
    return Machine(tools)


class Machine:
    def __init__(self, tools: Path):
        self.tools = tools
        self.free_kilobytes(100 * ENOUGH_KB)

    def program(self, name: str, script: str) -> None:
        path = self.tools / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def free_kilobytes(self, free: int) -> None:
        self.program("df", f"echo Filesystem 1024-blocks Used Available; echo disk 0 0 {free}")

    def preflight(self, torch: str = "2.15.0", **environment: str) -> subprocess.CompletedProcess:
        command = [ROOT / "tools" / "preflight.sh", "python3", torch, self.tools / ".venv"]
        environment = {"PATH": str(self.tools), **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def one_line(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("prismllm: "), done.stderr
    return done.stderr


def test_a_machine_with_compiler_python_and_room_is_accepted_silently(machine):
    done = machine.preflight()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_python_it_says_which_versions_to_install(machine):
    (machine.tools / "python3").unlink()
    assert "install Python 3.10 to 3.13" in one_line(machine.preflight())


@pytest.mark.parametrize("version", ["3.9", "3.14"])
def test_a_python_that_torch_does_not_serve_is_named(machine, version):
    machine.program("python3", f"echo {version}")
    assert f"Python {version}; 3.10 to 3.13 are supported" in one_line(machine.preflight())


def test_debian_without_its_venv_package_is_told_the_package(machine):
    machine.program("python3", f"""case "$2" in *ensurepip*) exit 1 ;; esac; exec {sys.executable} "$@" """)
    assert "install python3-venv" in one_line(machine.preflight())


def test_python_without_headers_is_told_the_package(machine):
    machine.program("python3", f"""case "$2" in *sysconfig*) echo /nowhere ;; *) exec {sys.executable} "$@" ;; esac""")
    assert "install python3-dev" in one_line(machine.preflight())


def test_without_a_compiler_it_says_which_to_install(machine):
    (machine.tools / "c++").unlink()
    assert "apt-get install build-essential" in one_line(machine.preflight())


@pytest.mark.parametrize(("kind", "version", "oldest"), [("gcc", 11, "g++ 12"), ("clang", 13, "clang 14")])
def test_a_compiler_older_than_cpp20_needs_is_named_with_its_version(machine, kind, version, oldest):
    machine.program("c++", f"echo {kind} {version}")
    line = one_line(machine.preflight())
    assert f"c++ is {kind} {version}" in line and oldest in line


def test_a_compiler_that_the_user_names_is_the_one_that_is_checked(machine):
    machine.program("old-g++", "echo gcc 9")
    assert "old-g++ is gcc 9" in one_line(machine.preflight(CXX="old-g++"))


def test_a_compiler_without_a_standard_library_is_refused(machine):
    machine.program("c++", f"""case "$*" in *-fsyntax-only*) exit 1 ;; esac; exec {shutil.which("c++")} "$@" """)
    assert "does not compile C++20" in one_line(machine.preflight())


def test_too_little_disk_is_said_with_both_figures(machine):
    machine.free_kilobytes(ENOUGH_KB - 1)
    assert "7 GB free; 8 GB are needed" in one_line(machine.preflight())
    machine.free_kilobytes(ENOUGH_KB)
    assert machine.preflight().returncode == 0


def test_room_is_not_asked_for_again_once_torch_is_installed(machine):
    machine.free_kilobytes(1000)
    (machine.tools / ".venv").mkdir()
    (machine.tools / ".venv" / ".installed-torch").touch()
    assert machine.preflight().returncode == 0


@pytest.mark.parametrize("version", ["2.10.0", "2.16.0", "3.0"])
def test_a_torch_outside_the_supported_range_is_refused(machine, version):
    assert f"torch {version} is not supported; 2.11 to 2.15 are" in one_line(machine.preflight(version))


def build_extension(tmp_path: Path, python: Path, path: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [python, ROOT / "setup.py", "-q", "build_ext", "--build-lib", tmp_path / "lib"]
    return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)


def test_pip_install_beside_an_unsupported_torch_is_one_line(tmp_path):
    metadata = tmp_path / "site" / "torch-2.10.1.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.10.1\n")
    line = one_line(build_extension(tmp_path, sys.executable, tmp_path / "site"))
    assert "torch 2.10.1 is not supported; install torch 2.11 to 2.15" in line


def test_pip_install_without_torch_is_one_line(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    for name in ("setuptools", "_distutils_hack"):
        (site / name).symlink_to(Path(sysconfig.get_path("purelib")) / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=60)
    line = one_line(build_extension(tmp_path, tmp_path / "venv" / "bin" / "python", site))
    assert "torch is not installed in" in line


def test_make_help_names_every_target_that_a_user_may_type():
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    targets = "build demo test lint bench check-jobs test-torch211 sanitize-address sanitize-thread clean help"
    assert listed >= set(targets.split()), done.stdout
