"""`prism` keeps its contract: exit codes, JSON keys, one clear line for wrong use, and answers at once."""

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from small_traces import Recording, build

from prismllm.launch import RunFolder
from prismllm.replay import replay

pytestmark = pytest.mark.cold_start
COMMANDS = [
    "record",
    "capture",
    "calibrate",
    "validate",
    "replay",
    "simulate",
    "info",
    "diff",
    "export",
    "report",
    "doctor",
]
CAPTURE_KEYS = "ranks classes slots wall_s switches switches_lower_bound peak_private_bytes_per_rank trace"
ECHO = "import os\nprint('rank', os.environ['RANK'])\n"


@pytest.fixture
def echo(tmp_path):
    (tmp_path / "echo.py").write_text(ECHO)
    return "echo.py"


@pytest.fixture(scope="module")
def traces(tmp_path_factory, repository_programs):
    """A recorded trace, and two captures of the same program on one slot and on two."""
    folder = tmp_path_factory.mktemp("traces")
    summaries = {}
    for name, arguments in {
        "recorded": ["record", "-n", "2"],
        "one": ["capture", "-n", "2", "--slots", "1"],
        "two": ["capture", "-n", "2", "--slots", "2"],
    }.items():
        command = [*arguments, "--json", f"{name}.json", "-o", f"{name}.prism", repository_programs / "ddp.py"]
        done = subprocess.run(
            [sys.executable, "-m", "prismllm", *map(str, command)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        summaries[name] = json.loads((folder / f"{name}.json").read_text()) | {"printed": done.stdout}
    return folder, summaries


@pytest.fixture(scope="module")
def repository_programs(repository):
    return repository / "tests" / "programs"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("conquer", "there is no command 'conquer'; commands: record, capture"),
        ("captre -n 2 echo.py", "there is no command 'captre'; did you mean 'capture'?"),
        ("record echo.py", "the number of ranks is missing; give it as -n N\n"),
        ("record echo.py -n 2", "missing; give it as -n N before the program's name"),
        ("record -n 0 echo.py", "0 is not in the range"),
        ("record -n two echo.py", "'two' is not a valid integer"),
        ("record -n 2", "Missing argument 'PROGRAM [ARGS]...'. Try 'prism record --help'."),
        ("record -n 2 absent.py", "there is no program 'absent.py'"),
        ("record -n 2 .", "is a folder"),
        ("record -n 2 -m absent.module", "there is no module 'absent.module'"),
        ("record -n 2 --nproc-per-node 3 echo.py", "--nproc-per-node 3 does not divide the 2 ranks"),
        ("record -n 2 -o absent/out.prism echo.py", "'absent/out.prism' cannot be written"),
        ("record -n 2 -o . echo.py", "cannot be written"),
        ("record -n 2 --json absent/x.json echo.py", "--json: 'absent/x.json' cannot be written"),
        ("record -n 2 -o echo.py echo.py", "'echo.py' cannot be written (it is the program as well)"),
        ("record -n 2 -o x --json x echo.py", "'x' cannot be written (it is -o as well)"),
        ("record -n 2 -o " + "x" * 240 + " echo.py", "File name too long"),
        ("record -n 2 --log-dir echo.py echo.py", "the run's folder cannot be made"),
        ("record -n 2 -o /dev/null echo.py", "'/dev/null' cannot be written (it is no regular file)"),
        ("record -n 2 --run-dir echo.py/run echo.py", "the run's folder cannot be made"),
        ("record -n 2 --slots 2 echo.py", "No such option '--slots'"),
        ("capture -n 2 --slots 0 echo.py", "--slots 0 leaves nobody to compute"),
        ("capture -n 2 --memory-budget lots echo.py", "'lots' is not a size"),
        ("capture -n 2 --memory-budget inf echo.py", "'inf' is not a size"),
        ("capture -n 2 --memory-budget 1e9T echo.py", "'1e9T' is not a size"),
        ("info absent.prism", "there is no trace 'absent.prism'"),
        ("info echo.py", "echo.py"),
        ("info .", "holds no recording"),
        ("diff", "Missing argument 'A'"),
        ("replay echo.py", "echo.py"),
        ("export --format vcr echo.py", "'vcr' is not"),
        ("export echo.py", "echo.py"),
        ("report echo.py", "echo.py"),
    ],
)
def test_wrong_use_is_one_clear_line_and_exit_code_2(echo, run_prism, command, complaint):
    done = run_prism(*command.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_a_run_folder_with_other_peoples_files_is_refused_and_one_of_an_earlier_run_is_used_again(
    echo, run_prism, tmp_path
):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "mine").touch()
    done = run_prism("record", "-n", 1, "--run-dir", ".", echo)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "is not of an earlier run" in done.stderr
    assert (tmp_path / "logs" / "mine").exists()
    for _ in range(2):
        assert run_prism("record", "--quiet", "-n", 1, "--run-dir", "run", echo).returncode == 0


def test_a_run_folder_belongs_to_one_run_at_a_time(echo, run_prism, tmp_path):
    held = RunFolder(str(tmp_path / "run"))
    held.create()
    done = run_prism("record", "-n", 1, "--run-dir", "run", echo)
    assert (done.returncode, "in use by another run" in done.stderr) == (2, True)


def test_relative_folders_stay_where_they_are_when_the_program_leaves(run_prism, tmp_path):
    (tmp_path / "leave.py").write_text("import os; os.chdir('/'); os.environ.clear(); print('gone')")
    done = run_prism("capture", "--quiet", "-n", 2, "--run-dir", "run", "--log-dir", "logs", "leave.py")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "logs" / "rank1.out").read_text() == "gone\n"


def test_names_and_arguments_may_be_any_bytes_and_look_like_markup(run_prism, tmp_path):
    names = {kind: os.fsdecode(b"a[/b]\xff") + kind for kind in (".py", ".prism", ".json", ".html")}
    (tmp_path / "a[").mkdir()
    (tmp_path / names[".py"]).write_text("import sys; print(ascii(sys.argv[1]))")
    run_dir = os.fsdecode(b"run-\xff")
    done = run_prism(
        "capture", "-n", 1, "--run-dir", run_dir, "-o", names[".prism"], names[".py"], os.fsdecode(b"\xfe")
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, r"'\udcfe'"), done.stderr
    assert r"a[/b]\udcff.prism" in done.stdout
    for command in ("info", "replay", "export", "report"):
        done = run_prism(command, names[".prism"], env=os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"})
        assert done.returncode == 0, done.stderr
    assert (tmp_path / names[".json"]).exists() and (tmp_path / names[".html"]).exists()


@pytest.mark.parametrize("redirection", ["<&- >&- 2>&-", "| head -n 1; exit ${PIPESTATUS[0]}", ">/dev/full"])
def test_a_run_does_not_depend_on_who_reads_its_output(tmp_path, redirection):
    (tmp_path / "chatty.py").write_text("for i in range(50_000): print(i)")
    command = f"{sys.executable} -m prismllm record --quiet -n 2 chatty.py {redirection}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "chatty.prism").exists()
    assert ("No space left" in done.stderr) == ("full" in redirection) and done.stderr.count("\n") <= 1


def test_characters_that_standard_output_does_not_know_are_escaped(run_prism, tmp_path):
    (tmp_path / "accents.py").write_text("import sys; sys.stdout.reconfigure(encoding='utf-8'); print('na\u00efve')")
    done = run_prism("record", "--quiet", "-n", 1, "accents.py", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "na\\xefve\n"), done.stderr


@pytest.mark.parametrize("command", ["info", "diff", "replay", "--help"])
def test_results_that_cannot_be_printed_are_one_clear_line(traces, command):
    arguments = [str(traces[0] / "one.prism")] * {"diff": 2, "--help": 0}.get(command, 1)
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "prismllm", command, *arguments], stdout=full,
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (4, 1) and "No space left on device" in done.stderr


def test_a_trace_is_not_written_over_by_what_is_made_of_it(traces, run_prism):
    trace = traces[0] / "one.prism"
    before = trace.read_bytes()
    for command in (["report", "-o"], ["export", "-o"], ["info", "--json"]):
        done = run_prism(*command, trace, trace)
        assert (done.returncode, "it is the TRACE as well" in done.stderr) == (2, True)
    assert trace.read_bytes() == before


def test_devices_and_pipes_are_written_to_and_links_followed_not_replaced(traces, run_prism, tmp_path):
    trace = traces[0] / "one.prism"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert run_prism("info", "--json", "pipe", trace).returncode == 0
    assert json.loads(os.read(reader, 1 << 16))["ranks"] == 2
    os.close(reader)
    done = run_prism("info", "--json", "pipe", trace)  # nobody reads any more
    assert (done.returncode, "'pipe': No such device" in done.stderr) == (4, True)
    (tmp_path / "link.json").symlink_to("target.json")
    assert run_prism("export", "-o", "link.json", trace).returncode == 0
    assert (tmp_path / "link.json").is_symlink() and json.loads((tmp_path / "target.json").read_text())["traceEvents"]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_an_example_and_does_not_import_torch(run_prism, command, tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    done = run_prism(*command.split(), "--help", env=os.environ | {"PYTHONPATH": python_path(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert f"Example: prism {command}" in done.stdout


def python_path(first) -> str:
    return os.pathsep.join([str(first), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_everything_after_the_program_belongs_to_the_program(run_prism, tmp_path):
    (tmp_path / "arguments.py").write_text("import sys; print(sys.argv[1:])")
    for separator in ([], ["--"]):
        done = run_prism("record", "--quiet", "-n", 1, *separator, "arguments.py", "-n", "9", "--json", "-", "--help")
        assert done.stdout == "['-n', '9', '--json', '-', '--help']\n"


def test_the_trace_is_named_after_the_program_unless_a_name_is_given(echo, run_prism, tmp_path):
    assert run_prism("record", "--quiet", "-n", 1, echo).returncode == 0
    assert (tmp_path / "echo.prism").exists()


def test_json_on_standard_output_leaves_nothing_else_there(run_prism, tmp_path):
    (tmp_path / "silent.py").write_text("")
    done = run_prism("record", "--json", "-", "-n", 1, "silent.py")
    assert json.loads(done.stdout)["ranks"] == 1
    assert "recorded silent.py" in done.stderr


def test_json_on_standard_output_moves_the_programs_output_to_standard_error(echo, run_prism):
    done = run_prism("record", "--quiet", "--json", "-", "-n", 1, echo)
    assert json.loads(done.stdout)["trace"] == "echo.prism"
    assert done.stderr == "rank 0\n"


def test_record_says_what_the_contract_promises(traces):
    summary = traces[1]["recorded"]
    assert summary.keys() - {"printed"} == {"ranks", "wall_s", "iterations", "memory", "trace"}
    # Three steps; that DDP makes new buckets in the first does not hide it.
    assert [one["index"] for one in summary["iterations"]] == [0, 1, 2]
    assert 0 < sum(one["time_s"] for one in summary["iterations"]) < summary["wall_s"]


def test_capture_says_what_the_contract_promises(traces):
    summary = traces[1]["one"]
    more = {"printed", "hosts", "memory", "staged_bytes_peak", "spilled_bytes_peak", "device_swaps", "device_swap_s"}
    assert summary.keys() - more == set(CAPTURE_KEYS.split())
    # Two ranks' gradients at least, of a job that needs no disk.
    assert summary["staged_bytes_peak"] > 1 << 10 and summary["spilled_bytes_peak"] == 0
    assert (summary["ranks"], summary["slots"], summary["trace"]) == (2, 1, "one.prism")
    assert summary["switches"] >= summary["switches_lower_bound"] > 0
    assert summary["peak_private_bytes_per_rank"] > 1 << 20


def test_a_capture_trains_as_the_real_run_does_on_any_number_of_slots(traces):
    results = {
        name: next(line for line in summary["printed"].splitlines() if line.startswith("RESULT"))
        for name, summary in traces[1].items()
    }
    assert results["one"] == results["two"]
    losses = {name: json.loads(line.split(" ", 1)[1])["losses"] for name, line in results.items()}
    assert losses["one"] == pytest.approx(losses["recorded"], rel=1e-5)


def test_captures_on_one_and_two_slots_are_equal_and_other_jobs_are_not(traces, repository_programs, run_prism):
    folder, _ = traces
    same = run_prism("diff", folder / "one.prism", folder / "two.prism")
    assert (same.returncode, same.stdout) == (0, "equal\n"), same.stderr
    longer = (repository_programs / "ddp.py", "--steps", 5)
    done = run_prism("capture", "--quiet", "-n", 2, "-o", "longer.prism", *longer)
    assert done.returncode == 0, done.stderr
    other = run_prism("diff", "--json", "diff.json", folder / "one.prism", "longer.prism")
    assert other.returncode == 1
    assert other.stdout.startswith("different in ")


def test_diff_names_the_communication_that_differs(run_prism, tmp_path):
    (tmp_path / "p.py").write_text(
        "import sys, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "pair = dist.new_group([0, 1])\ndist.all_reduce(torch.ones(4))\n"
        "dist.broadcast(torch.ones(int(sys.argv[1])), 0, group=pair)\n"
    )
    for size in (4, 8):
        assert run_prism("capture", "-n", 2, "-o", f"{size}.prism", "p.py", size).returncode == 0
    told = run_prism("diff", "4.prism", "8.prism").stdout
    assert "(broadcast 0 of group '1'): input_bytes is 16 in A and 32 in B" in told


def test_info_counts_what_the_program_did(traces, run_prism):
    done = run_prism("info", "--json", "-", traces[0] / "recorded.prism")
    summary = json.loads(done.stdout)
    assert summary["ranks"] == 2 and summary["timed"] and summary["iterations"] == 3
    assert summary["collectives"]["all_reduce"]["count"] >= 6  # per step: the gradients' bucket, and the mean loss
    assert run_prism("info", traces[0] / "recorded.prism").stdout.count("all_reduce") == 1


@pytest.mark.skipif(
    not [one for one in entry_points(group="torch.backends") if one.name == "prismllm"],
    reason="torch finds the recorder through the installed package's entry point",
)
def test_fragments_recorded_under_torchrun_are_read_as_a_trace(repository_programs, run_prism, tmp_path):
    # Gloo's own threads may let go of a tensor while the interpreter is taken down, which aborts the process, with or
    # without prism (1 of 40 runs on a busy machine): it ends when its exit handlers have run, prism's before this one.
    program = tmp_path / "program.py"
    program.write_text(
        "import atexit, os, runpy, sys\n"
        "atexit.register(os._exit, 0)\n"
        f"sys.path.insert(0, {str(repository_programs)!r})\n"
        f"runpy.run_path({str(repository_programs / 'ddp.py')!r}, run_name='__main__')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", program]
    environment = os.environ | {"PRISM_RECORD": str(tmp_path / "recording")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(run_prism("info", "--json", "-", "recording").stdout)
    assert (summary["ranks"], summary["iterations"], summary["timed"]) == (2, 3, True)
    (tmp_path / "recording" / "rank-1.prism").unlink()
    os.utime(tmp_path / "recording" / "rank-0.prism")  # recorded again
    assert "lacks the recordings of ranks [1] of 2" in run_prism("info", "recording").stderr


def test_replay_prints_what_the_library_computes(traces, run_prism):
    done = run_prism("replay", "--json", "-", traces[0] / "recorded.prism")
    summary = json.loads(done.stdout)
    assert summary.keys() == {"iterations", "ranks", "critical_path_s", "critical_path", "critical_path_iteration",
                              "critical_path_rest", "late", "late_rest"}  # fmt: skip
    assert summary == replay(traces[0] / "recorded.prism").to_json()
    assert len(summary["iterations"]) == len(traces[1]["recorded"]["iterations"])


def test_a_scenario_slows_a_rank_down_by_what_it_says(traces, run_prism, tmp_path):
    trace = traces[0] / "recorded.prism"
    (tmp_path / "slow.toml").write_text("[[edit]]\nrank = 1\niteration = 1\nscale = 1.0\nadd_s = 1.0\n")
    (tmp_path / "typo.toml").write_text("[[edit]]\nrnk = 1\n")
    slow = json.loads(run_prism("replay", "--scenario", "slow.toml", "--json", "-", trace).stdout)
    assert slow["iterations"][1]["time_s"] > replay(trace).iterations[1].time_s + 1
    typo = run_prism("replay", "--scenario", "typo.toml", trace)
    assert (typo.returncode, "rnk = 1; accepted: rank" in typo.stderr) == (2, True)


@pytest.mark.parametrize(
    ("scenario", "complaint"),
    [
        ("edit = 3", "edit = 3; accepted: tables [[edit]]"),
        ("edit = [3]", "edit = [3]; accepted: tables [[edit]]"),
        ("edits = []", "'edits' is not known"),
        ("[[edit]]\nrank = -1", "edit 0: rank = -1; accepted: 0 to"),
        ("[[edit]]\nnode = 99999999999999999999\nrank = 0", "edit 0: node = 99999999999999999999; accepted: 0 to"),
        ("[[edit]]\nrank = 1.0", "edit 0: rank = 1.0; accepted: 0 to"),
        ("[[edit]]\nrank = 1", "edit 0 changes nothing: give it scale, add_s or set_s"),
        ("[[edit]]\nrank = 77\nscale = 2", "edit 0 (rank 77): matches no compute span"),
        ("[[edit]]\nname = 3", "edit 0: name = 3; accepted: text"),
        ("[[edit]]\nscale = nan", "edit 0: scale = nan; accepted: 0 to"),
        ("[[edit]]\nscale = true", "edit 0: scale = True; accepted: 0 to"),
        ("[[edit]]\nadd_s = inf", "edit 0: add_s = inf; accepted: -9"),
        ("[[edit]]\nadd_s = 1e300", "edit 0: add_s = 1e+300; accepted: -9"),
        ("[[edit]]\nscale = 1" + "0" * 400, "...; accepted: 0 to"),
        ("[[edit", "scenario.toml: "),
        (None, "scenario.toml: not a regular file"),
    ],
)
def test_a_scenario_that_says_nothing_sensible_is_refused_in_one_line(traces, run_prism, tmp_path, scenario, complaint):
    path = tmp_path / "scenario.toml"
    os.mkfifo(path) if scenario is None else path.write_text(scenario)
    done = run_prism("replay", "--scenario", "scenario.toml", traces[0] / "one.prism")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr


@pytest.mark.parametrize("command", ["replay", "export", "report"])
def test_a_trace_whose_ranks_wait_for_each_other_for_ever_says_who_waits_for_whom(run_prism, tmp_path, command):
    recordings = []
    for rank in range(2):
        r = Recording(rank, [("default_pg", [0, 1])])
        for op in ("recv", "send"):
            r.wait(*r.issue(op, 0, 64, r.now, peer=1 - rank), r.now)
        recordings.append(r)
    build(recordings, timed=False).write(tmp_path / "circle.prism")
    done = run_prism(command, "circle.prism")
    assert done.returncode == 4
    assert done.stderr.startswith("prism: circle.prism: replay cannot go on:"), done.stderr
    assert sorted(os.listdir(tmp_path)) == ["circle.prism"]


def test_export_and_report_write_what_they_name(traces, run_prism, tmp_path):
    done = run_prism("export", "--format", "chrome", "-o", "x.json", traces[0] / "recorded.prism", "--json", "-")
    assert json.loads(done.stdout) == {"written": "x.json", "unknown": []}
    assert json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    done = run_prism("report", "-o", "x.html", traces[0] / "recorded.prism")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.html").read_text().lstrip().lower().startswith("<!doctype html")


def test_a_program_that_wants_nccl_runs_on_the_cpu_and_the_summary_says_so_once(repository_programs, run_prism):
    done = run_prism("capture", "-n", 2, repository_programs / "ddp.py", "--backend", "nccl",
                     env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nccl") == 1


def test_a_backend_that_torch_does_not_have_is_named(repository_programs, run_prism):
    done = run_prism("record", "-n", 1, "--backend", "nonesuch", repository_programs / "ddp.py")
    assert done.returncode == 3
    assert "ValueError: torch.distributed has no backend 'nonesuch' here" in done.stderr


def test_doctor_finds_this_machine_able(run_prism):
    done = run_prism("doctor", "-n", 4, "--json", "-")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert all(check["ok"] for check in checks.values()), checks
    assert checks.keys() >= {"python", "torch", "modules", "memfd", "memory", "open files", "device swap"}


def test_doctor_says_no_where_memory_is_too_small(run_prism):
    done = run_prism("doctor", "-n", 10**9, "--json", "-")
    assert done.returncode == 1
    assert not next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "memory")["ok"]


def test_a_reader_that_goes_away_is_no_error(traces):
    command = [sys.executable, "-m", "prismllm", "info", traces[0] / "recorded.prism"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, -signal.SIGPIPE)
