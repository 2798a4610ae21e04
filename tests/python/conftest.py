"""What all Python tests share: deterministic inputs, and programs of the package run as a user would run them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest

# The same examples in every run, and no time limits on a busy machine.
hypothesis.settings.register_profile("prism", derandomize=True, deadline=None)
hypothesis.settings.load_profile("prism")

# A shell ignores Ctrl-C for what it runs in the background, nohup ignores the end of a session, and what is ignored
# stays so in all children: the programs under test would not end by it.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

# One thread per rank: what many ranks on few cores need, and what makes sums repeatable.
os.environ.setdefault("OMP_NUM_THREADS", "1")
ENVIRONMENT = dict(os.environ)


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def of_gloo():
    """What every collective gives on 4 ranks of plain Gloo: [rank] -> {name: tensors}."""
    import collectives
    import worlds

    return worlds.run_ranks(4, collectives.job)


@pytest.fixture(scope="session")
def warm_prism():
    import warm_prism

    with contextlib.closing(warm_prism.WarmPrism(ENVIRONMENT)) as warm:
        yield warm


@pytest.fixture
def run_prism(tmp_path, request):
    """Runs `prism ARGS...` in a folder of its own and returns the completed process, its output as text. It is a fork
    of one that has imported torch, unless it is to start cold, as all of tests marked `cold_start`, or has options."""
    all_cold = request.node.get_closest_marker("cold_start") is not None

    def run(*arguments, timeout: float = 120, cold: bool = all_cold, **options) -> subprocess.CompletedProcess:
        arguments = list(map(str, arguments))
        if not (cold or options) and (warm := request.getfixturevalue("warm_prism")).is_as(os.environ):
            return warm.run(arguments, tmp_path, timeout)
        command = [sys.executable, "-m", "prismllm", *arguments]
        options = {"cwd": tmp_path, "stdin": subprocess.DEVNULL} | options
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)

    return run


@pytest.fixture(scope="session")
def plain_captures(tmp_path_factory):
    """What tests have captured without options, by program, ranks, slots and arguments: to be read, never written."""
    return {}, tmp_path_factory.mktemp("plain-captures")


@pytest.fixture
def captured(run_prism, tmp_path, plain_captures):
    """Captures a program (a path, or its text); returns (its trace, the summary, what it printed). Without options the
    same program is captured once for all tests: every capture of it is the same (test_programs.py)."""
    import prismllm

    known, shared = plain_captures
    count = 0

    def run(folder, program, *options, world, slots, arguments):
        if "\n" in str(program):
            path = folder / "program.py"
            path.write_text(program)
            program = path
        trace, summary = folder / f"{count}.prism", folder / f"{count}.json"
        done = run_prism("capture", "-n", world, "--slots", slots, "-o", trace, "--json", summary, *options, program,
                         *arguments)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return trace, summary.read_text(), done.stdout

    def capture(program, *options, world=4, slots=2, arguments=()):
        nonlocal count
        count += 1
        what = {"world": world, "slots": slots, "arguments": arguments}
        key = (str(program), world, slots, *map(str, arguments))
        if options:
            found = run(tmp_path, program, *options, **what)
        elif not (found := known.get(key)):
            found = known[key] = run(Path(tempfile.mkdtemp(dir=shared)), program, **what)
        if "\n" in str(program):
            (tmp_path / "program.py").write_text(program)
        return prismllm.load(found[0]), json.loads(found[1]), found[2]

    return capture


@pytest.fixture
def rules(tmp_path):
    def write(text):
        path = tmp_path / "rules.py"
        path.write_text("import torch\nfrom prismllm import inputs\n" + text + "\n")
        return path

    return write


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 MiB."""
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    image.write_bytes(bytes(16 << 20))
    make = shutil.which("mkfs.ext4", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    if (
        not make
        or subprocess.run([make, "-q", image], timeout=60).returncode
        or subprocess.run(["mount", "-o", "loop", image, place], stderr=subprocess.DEVNULL, timeout=60).returncode
    ):
        pytest.skip("making and mounting a file system takes mkfs.ext4, root and a loop device")
    yield place
    subprocess.run(["umount", place], check=True, timeout=60)
