"""The wheel: what it holds, and that it works in an environment of its own beside the torch it was built for."""

import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.alone  # it builds in the tree
# Nothing of this interpreter's environment variables decides what is imported.
CLEAN = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(Path.home()), "OMP_NUM_THREADS": "1"}
MODULES = ("_graph", "_data", "_replay", "_simulate", "_calibrate", "_c10d")


def run(*command, **options) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=1200, env=CLEAN, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """`pip wheel` as an installer runs it; the native modules come from the build folder of this Python and torch."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", folder, ROOT)
    (made,) = folder.glob("*.whl")
    return made


def test_a_wheel_holds_the_package_and_its_modules_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    package = [name for name in names if not name.startswith(f"prismllm-{version(wheel)}.dist-info/")]
    package_folder = ROOT / "python/prismllm"
    data = [*package_folder.glob("report/page.*"), *package_folder.glob("cluster/*.toml"),
            *package_folder.glob("cluster/*.json")]  # fmt: skip
    data = {path.relative_to(ROOT / "python").as_posix() for path in data}
    code = re.compile(r"prismllm/[\w/]+\.(py|typed)|prismllm/_\w+\.so")
    assert data and data == {name for name in package if not code.fullmatch(name)}
    modules = {name for name in package if name.endswith(".so")}
    assert modules == {f"prismllm/{name}.so" for name in MODULES}
    sources = {path.relative_to(ROOT / "python").as_posix() for path in (ROOT / "python" / "prismllm").rglob("*.py")}
    assert {name for name in package if name.endswith(".py")} == sources


def version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def test_a_wheel_is_of_this_platform_and_carries_the_license(wheel):
    assert wheel.name.endswith("x86_64.whl") or wheel.name.endswith("aarch64.whl")
    archive = zipfile.ZipFile(wheel)
    assert any(name.endswith("LICENSE") for name in archive.namelist())
    metadata = archive.read(f"prismllm-{version(wheel)}.dist-info/METADATA").decode()
    assert "Requires-Dist: torch<2.16,>=2.11" in metadata


def test_modules_find_torch_beside_themselves_and_keep_no_path_of_the_build_machine(wheel, tmp_path):
    if not shutil.which("readelf"):
        pytest.fail("readelf was not found; it comes with the compiler (binutils)")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for module in (tmp_path / "prismllm").glob("*.so"):
        dynamic = run("readelf", "-d", module)
        assert set(re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", dynamic)) <= {"$ORIGIN/../torch/lib"}, dynamic
        assert [name for name in re.findall(r"NEEDED\).*\[(.*)\]", dynamic) if "/" in name] == []


def test_an_installed_wheel_registers_its_command_and_its_entry_points(wheel, tmp_path):
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin" / "python"
    # torch and the rest are used where they are, 5 GB need no copy.
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)

    # Each module in a fresh process, from a folder that has no prismllm in it. Only the adapter needs torch, and takes
    # the libraries that `import torch` has loaded.
    for module in MODULES:
        first = "import torch; " if module == "_c10d" else ""
        where = run(python, "-c", f"{first}import prismllm.{module} as m; print(m.__file__)", cwd=tmp_path).strip()
        assert Path(where) == site / "prismllm" / f"{module}.so"
    assert "capture" in run(venv / "bin" / "prism", "--help", cwd=tmp_path)
    # A program that asks for the backend by name, and imports nothing of ours.
    program = (
        "import torch.distributed as d; d.init_process_group('prism', store=d.HashStore(), rank=0, world_size=1);"
        "print(d.get_backend()); d.destroy_process_group()"
    )
    assert run(python, "-c", program, cwd=tmp_path).split() == ["prism"]
