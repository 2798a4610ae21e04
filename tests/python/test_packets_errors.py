"""What happens where prism-ns3 is absent, dies, or is told what it cannot take."""

import shutil
import subprocess

import pytest
from packets import PROGRAM, commands, needs_ns3, run_elsewhere


@needs_ns3
@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("hello", "'hello'; accepted: topology"),
        ("topology 0 0 1 0", "vertices '0'; accepted: 1 to 1048576"),
        ("topology 2 1", "endpoints ''; accepted: 1 to 1048576"),
        ("topology 2 1 2 0", "the input ends where 'link' was to come"),
        ("topology 2 1 2 0\nlink 0 2 1e9 0", "vertex '2'; accepted: 0 to 1"),
        ("topology 2 1 2 0\nlink 0 1 nan 0", "bytes per second 'nan'; accepted: 1 to 1e+18"),
        ("topology 2 1 2 0\nlink 0 1 1e9 -1", "latency in ps '-1'; accepted: 0 to 100000000000000000"),
        ("topology 2 1 2 0\nlink 0 1 1e9 0 0", "'0' after the end of the request"),
        ("topology 2 0 1 0\nendpoint 0 0", "host '0'; accepted: -1 to -1"),
        ("PAIR\nleave", "'leave'; accepted: connect, send, advance"),
        ("PAIR\nconnect 0 2 0 0", "endpoint '2'; accepted: 0 to 1"),
        ("PAIR\nconnect 0 1 0 0", "a way to vertex 0; accepted: to vertex 1"),
        ("PAIR\nconnect 0 1 1 1 1 0", "link 1 begins at vertex 1; accepted: one from vertex 0"),
        ("PAIR\nconnect 0 1 1 0 9 0", "links on the way '9'; accepted: 0 to 2"),
        ("PAIR\nCONNECT\nCONNECT", "endpoint 0 to 1 are connected already"),
        ("PAIR\nsend 0 0 0 1 5", "endpoint 0 to 1 are not connected"),
        ("PAIR\nCONNECT\nsend 0 0 0 1 99999999999999999999", "bytes '99999999999999999999'; accepted: 0 to"),
        ("PAIR\nCONNECT\nsend 0 0 0 1 1\nsend 0 0 0 1 1", "message 0 is under way already"),
        ("PAIR\nCONNECT\nadvance 5\nsend 4 0 0 1 1", "a message at 4 ps; accepted: from 5 on"),
        ("x" * (1 << 20), "a line of 1048576 characters or more"),
    ],
)
def test_what_the_program_cannot_take_is_one_line(lines, says):
    lines = lines.replace("PAIR", "topology 2 2 2 0\nlink 0 1 1e9 0\nlink 1 0 1e9 0\nendpoint 0 -1\nendpoint 1 -1")
    lines = lines.replace("CONNECT", "connect 0 1 1 0 1 1")
    done = subprocess.run([PROGRAM], input=lines + "\n", capture_output=True, text=True, timeout=60)
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 2 and done.stderr == "", done
    assert last.startswith("error ") and says in last, last


def test_without_the_program_it_says_how_to_get_it(tmp_path, repository):
    for command in commands(tmp_path, repository):
        done = run_elsewhere(tmp_path, *command)
        assert done.returncode == 2, done
        assert "network 'ns3' needs the program prism-ns3" in " ".join(done.stderr.split())
        assert "'make ns3' or 'pip install ./ns3'" in " ".join(done.stderr.split()) and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("on_advance", "exit_code", "says"),
    [
        ("echo 'no memory left' >&2; exit 3", 4, "prism-ns3 ended with exit code 3: no memory left"),
        ("kill -9 $$", 4, "prism-ns3 was ended by signal 9 (Killed)"),
        ("echo 'now 1'", 4, "prism-ns3 answered 'now 1'"),
        ("echo 'error link 9'; exit 2", 2, "prism-ns3: link 9"),
    ],
)
def test_a_program_that_dies_under_way_is_one_error(tmp_path, repository, on_advance, exit_code, says):
    program = tmp_path / "prism-ns3"
    program.write_text(f"#!{shutil.which('sh')}\necho 'prism-ns3 1'\n"
                       f"while read -r line; do case $line in advance*) {on_advance} ;; esac; done\n")  # fmt: skip
    program.chmod(0o755)
    for command in commands(tmp_path, repository):
        done = run_elsewhere(tmp_path, *command)
        assert done.returncode == exit_code, done
        assert says in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
