"""A capture on several hosts. Hosts are network namespaces, joined by a veth pair: they share nothing but the link (and
the file system, as on a cluster)."""

import json
import os
import re
import signal
import socket
import sys
import threading
import time

import pytest
from host_pairs import TOKEN, Job, two_hosts

from prismllm.launch import LaunchError, RunFolder
from prismllm.launch.hosts import agent as agents
from prismllm.launch.hosts import channel as channels
from prismllm.launch.hosts import head as heads
from prismllm.launch.hosts.channel import Channel, ChannelError, parse_address, read_token
from prismllm.launch.hosts.head import shares
from prismllm.launch.processes import descendants
from prismllm.trace import diff, load

# --- the greeting


def ends():
    return [Channel(end, 20) for end in socket.socketpair()]


def greet(agents_token, heads_token):
    """(what the head's side raised, what the agent's side raised, both keys)."""
    head, agent = ends()
    raised = {}

    def run(name, greeting, token):
        try:
            greeting(token)
        except ChannelError as why:
            raised[name] = str(why)
            (head if name == "head" else agent).close()

    threads = [
        threading.Thread(target=run, args=("head", head.greet_agent, heads_token)),
        threading.Thread(target=run, args=("agent", agent.greet_head, agents_token)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised.get("head"), raised.get("agent"), head.key, agent.key


def test_two_that_know_the_token_share_a_key_that_never_travels():
    first, second = greet(TOKEN, TOKEN), greet(TOKEN, TOKEN)
    assert first[:2] == (None, None)
    assert first[2] == first[3] and len(first[2]) == 32
    assert first[2] != second[2]


def test_another_token_is_refused_on_both_sides():
    head, agent, *keys = greet(b"another token", TOKEN)
    assert head == "it does not know the token"
    assert "different tokens" in agent
    assert keys == [b"", b""]


@pytest.mark.parametrize(
    "answer",
    [{}, {"proof": "\u00e9", "nonce": "\ud800"}, {"proof": 1, "nonce": []}, {"nonce": "0" * 32, "proof": "f" * 64}],
)
def test_whatever_an_agent_answers_the_head_only_refuses_it(answer):
    head, agent = ends()
    agent.send(answer)
    with pytest.raises(ChannelError):
        head.greet_agent(TOKEN)


def test_an_end_that_speaks_slowly_is_not_waited_for_any_longer():
    head, agent = ends()
    head.deadline = time.monotonic()
    agent.socket.sendall(b"x")
    with pytest.raises(ChannelError, match="in time"):
        head.receive()


def test_hosts_of_one_name_are_told_apart_whoever_came_first():
    offers = [heads.Offer(None, "a", slots, "10.0.0.1") for slots in (2, 1)] + [heads.Offer(None, "b", 1, "10.0.0.2")]
    for order in (offers, offers[::-1]):
        for offer in order:
            offer.name = offer.name[0]
        told = heads._told_apart(sorted(order, key=lambda offer: (offer.name, offer.slots, offer.peer)))
        assert [(offer.name, offer.slots) for offer in told] == [("a", 1), ("a#2", 2), ("b", 1)]


def test_before_the_greeting_nobody_can_make_us_keep_much():
    ours, theirs = ends()
    theirs.socket.sendall(channels._HEADER.pack(1 << 30, 0))
    with pytest.raises(ChannelError, match="a message of 1073741824 and 0 bytes"):
        ours.greet_head(TOKEN)
    ours, theirs = ends()
    theirs.socket.sendall(channels._HEADER.pack(4, 0) + b"[[[[")
    with pytest.raises(ChannelError, match="no message"):
        ours.greet_head(TOKEN)


@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        (0o644, "a" * 40, "mode 0644"),
        (0o640, "a" * 40, "mode 0640"),
        (0o600, "short", "has 5 bytes; accepted: 16 to 4096"),
        (0o600, "a" * 5000, "accepted: 16 to 4096"),
    ],
)
def test_a_token_that_others_can_read_or_guess_is_refused(mode, text, why, tmp_path):
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ValueError, match=why):
        read_token(str(file))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", ("a", 29600)), ("a:1", ("a", 1)), ("10.0.0.1", ("10.0.0.1", 29600)), ("[::1]:5", ("::1", 5)),
     ("::1", ("::1", 29600)), ("[fe80::2]", ("fe80::2", 29600))],
)  # fmt: skip
def test_addresses(text, expected):
    assert parse_address(text, 29600) == expected


@pytest.mark.parametrize("text", ["", ":5", "a:b", "a:70000", "a:-1"])
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="accepted: HOST"):
        parse_address(text, 29600)


def test_ranks_go_where_the_slots_are_in_blocks():
    assert shares(64, [2, 2]) == [32, 32]
    assert shares(8, [0, 1, 3]) == [0, 2, 6]
    assert shares(3, [1, 1, 1, 1]) == [0, 1, 1, 1]
    assert sum(shares(1021, [3, 5, 7, 11])) == 1021


# --- whole runs


@pytest.fixture
def hosts():
    with two_hosts() as words:
        yield words


# Every rank prints, all kinds of operations cross between the hosts, a tensor of some MB among them.
TRAINING = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
total = torch.full((500_000,), float(rank)).requires_grad_(False)
dist.all_reduce(total)
gathered = [torch.zeros(3, dtype=torch.bfloat16) for _ in range(world)]
dist.all_gather(gathered, torch.full((3,), rank + 0.5, dtype=torch.bfloat16))
sizes = [i + 1 for i in range(world)]
out = torch.zeros((rank + 1) * world)
dist.all_to_all_single(out, torch.arange(float(sum(sizes))), [rank + 1] * world, sizes)
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank, "pid_differs": True})
token = torch.tensor([float(rank)])
if rank:
    dist.recv(token, rank - 1)
    token += rank
if rank + 1 < world:
    dist.send(token, rank + 1)
pair, _ = dist.new_subgroups_by_enumeration([[0, world - 1], list(range(1, world - 1))])
dist.barrier(pair)
print("RESULT", rank, total[0].item(), gathered[-1].tolist(), out.sum().item(), token.item(), len(objects),
      os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"], flush=True)
print("to stderr", file=sys.stderr)
dist.destroy_process_group()
"""


def results(text):
    return sorted(line.split("RESULT ")[1] for line in text.splitlines() if "RESULT " in line)


def test_a_job_on_two_hosts_gives_the_values_and_the_trace_of_one_host(hosts, tmp_path, run_prism):
    job = Job(tmp_path, hosts, TRAINING)
    assert job.codes() == (0, 0), job.text() + job.text("agent")
    (tmp_path / "alone").mkdir()
    alone = run_prism("capture", "-n", 4, "--slots", 2, "-o", "alone.prism", "program.py")
    assert alone.returncode == 0, alone.stderr
    assert results(job.text()) == results(alone.stdout)
    assert len(results(job.text())) == 4
    assert job.text().count("to stderr") == 4
    equal, difference = diff(load(tmp_path / "out.prism"), load(tmp_path / "alone.prism"))
    assert equal, difference
    summary = json.loads((tmp_path / "out.json").read_text())
    assert (summary["hosts"], summary["slots"], summary["ranks"]) == (2, 2, 4)
    assert "runs ranks 2 to 3 of 4" in job.text("agent")


def test_the_head_may_leave_all_ranks_to_an_agent_which_torchrun_starts(hosts, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "1", "--no-python"]
    # Its budget holds none of the job's large tensors.
    budget = ["--memory-budget", "1M", "--spill-dir", os.path.dirname(__file__)]
    job = Job(tmp_path, hosts, TRAINING, head_slots=0, starter=torchrun, agent_options=budget)
    assert job.codes() == (0, 0), job.text() + job.text("agent")
    assert "runs ranks 0 to 3 of 4" in job.text("agent")
    assert len(results(job.text())) == 4


def test_an_agent_for_which_no_rank_is_left_ends_at_once(hosts, tmp_path):
    job = Job(tmp_path, hosts, "print('alone')", head_slots=0, ranks=1, agents=2)
    assert job.codes() == (0, 0, 0), job.text()
    said = sorted(job.text(log).splitlines()[-1] for log in ("agent", "agent1"))
    assert said == [
        "prism agent: runs ranks 0 to 0 of 1",
        "prism agent: there are more hosts than ranks: nothing to do here",
    ]


def test_a_host_may_take_longer_to_import_torch_than_a_host_may_be_silent(hosts, tmp_path):
    """A cold disk, say; only on the agent's host."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(
        "import sys, time\nif any('prismllm.launch.zygote' in word for word in sys.orig_argv): time.sleep(5)"
    )
    job = Job(tmp_path, hosts, TRAINING, "--host-timeout", 3, environment={"PYTHONPATH": str(tmp_path / "slow")})
    assert job.codes() == (0, 0), job.text() + job.text("agent")


WAITING = """
import os, sys, threading
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
print(f"rank{rank}={os.getpid()} ready", flush=True)
MORE
if rank != 1:
    dist.all_reduce(torch.ones(1))
threading.Event().wait()
"""


def pid_of(job, rank):
    return int(job.text().split(f"rank{rank}=")[1].split()[0])


@pytest.fixture
def waiting(hosts, tmp_path):
    """A run whose four ranks are up, two on each host; all but rank 1 wait for it."""
    job = Job(tmp_path, hosts, WAITING.replace("MORE", ""), "--host-timeout", 5)
    job.wait_for(" ready", 4)
    yield job
    for process in (job.head, job.agent):
        process.kill()


def test_a_rank_killed_on_another_host_ends_the_run_and_is_named(waiting):
    pids = waiting.everyone()
    os.kill(pid_of(waiting, 3), signal.SIGKILL)
    assert waiting.codes() == (3, 3)
    assert "prism: rank 3 was killed by SIGKILL" in waiting.text()
    waiting.assert_nothing_left(pids)


def test_a_rank_stopped_on_another_host_ends_the_run_and_is_named(waiting):
    pids = waiting.everyone()
    os.kill(pid_of(waiting, 2), signal.SIGSTOP)
    assert waiting.codes()[0] == 3
    assert "rank 2 was stopped by SIGSTOP" in waiting.text()
    waiting.assert_nothing_left(pids)


def test_a_killed_agent_ends_the_run_and_its_ranks(waiting):
    pids = waiting.everyone()
    waiting.agent.kill()
    assert waiting.codes()[0] in (3, 4)
    assert f"host {socket.gethostname()} (ranks 2-3) is lost" in waiting.text()
    waiting.assert_gone(pids)


def test_a_killed_zygote_on_another_host_ends_the_run(waiting):
    pids = waiting.everyone()
    os.kill(descendants(waiting.agent.pid)[0], signal.SIGKILL)
    assert waiting.codes() == (4, 4)
    assert f"host {socket.gethostname()} (ranks 2-3): the zygote was killed by SIGKILL" in waiting.text()
    waiting.assert_nothing_left(pids)


def test_a_killed_head_ends_the_agents_ranks(waiting):
    pids = waiting.everyone()
    waiting.head.kill()
    assert waiting.codes() == (-signal.SIGKILL, 3)
    assert "prism: the head has ended the run, or was killed" in waiting.text("agent")
    waiting.assert_nothing_left(pids)


def test_ctrl_c_at_the_head_ends_both(waiting):
    pids = waiting.everyone()
    waiting.head.send_signal(signal.SIGINT)
    assert waiting.codes()[0] == 130
    waiting.assert_nothing_left(pids)


def test_sigterm_to_an_agent_ends_both(waiting):
    pids = waiting.everyone()
    waiting.agent.send_signal(signal.SIGTERM)
    assert waiting.codes() == (4, 128 + signal.SIGTERM)
    assert f"host {socket.gethostname()} (ranks 2-3): ended by SIGTERM" in waiting.text()
    waiting.assert_nothing_left(pids)


def test_a_host_that_cannot_be_reached_any_more_ends_both(waiting):
    pids = waiting.everyone()
    waiting.cut()
    head, agent = waiting.codes()
    assert head in (3, 4) and agent == 3  # whichever of the two connections is missed first
    assert f"host {socket.gethostname()} (ranks 2-3) is lost: nothing was heard of it for 5 s" in waiting.text()
    assert "the coordinator is lost: nothing was heard of it for 5 s" in waiting.text("agent")
    waiting.assert_nothing_left(pids)


def test_an_exception_on_another_host_is_shown_with_its_rank(hosts, tmp_path):
    job = Job(tmp_path, hosts, WAITING.replace("MORE", "if rank == 3: raise ValueError('no such expert')"))
    assert job.codes() == (3, 3)
    assert "rank 3 failed:\nTraceback" in job.text()
    assert "ValueError: no such expert" in job.text()


def test_a_deadlock_across_hosts_is_found(hosts, tmp_path):
    text = WAITING.replace("threading.Event().wait()", "")
    job = Job(tmp_path, hosts, text.replace("MORE", "if rank == 1: dist.recv(torch.ones(1), 3)"))
    assert job.codes() == (3, 3)
    assert "deadlock: no rank can make progress" in job.text()
    assert "ranks 0, 2-3 in all_reduce #1" in job.text()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"digest": "0" * 64}, "the program program.py is another one here than at the head"),
        ({"folder": "/nowhere"}, "the folder /nowhere cannot be entered: No such file or directory"),
        ({"program": {"name": "absent.py", "is_module": False, "args": []}}, "there is no program 'absent.py'"),
    ],
)
def test_a_program_that_is_not_the_heads_is_not_run(changed, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("")
    program = {"name": "program.py", "is_module": False, "args": []}
    job = {"program": program, "digest": "", "folder": str(tmp_path), "link_port": 1, "host_timeout_s": 10} | changed
    with pytest.raises(LaunchError, match=re.escape(why)):
        agents._options(job, agents.Means(1), RunFolder(str(tmp_path)), ends()[0], ("127.0.0.1", 1))


# --- wrong use


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--agents", 1], "--agents needs --token-file"),
        (["--slots", 0], "--slots 0 leaves nobody to compute"),
        (["--listen", "127.0.0.1"], "are for --agents K"),
        (["--agents", 1, "--token-file", "absent"], "umask 077"),
        (["--agents", 1, "--token-file", "token", "--listen", "a:b"], "'a:b' is no address"),
    ],
)
def test_wrong_use(options, why, tmp_path, run_prism):
    (tmp_path / "token").write_bytes(TOKEN)
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "program.py").write_text("")
    done = run_prism("capture", "-n", 2, *options, "program.py")
    assert done.returncode == 2
    assert why in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_agents_that_do_not_come_are_waited_for_up_to_a_limit(tmp_path, run_prism):
    (tmp_path / "token").write_bytes(TOKEN)
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "program.py").write_text("")
    done = run_prism("capture", "-n", 2, "--agents", 2, "--token-file", "token", "--listen", "127.0.0.1:0", "--wait", 1,
                     "program.py")  # fmt: skip
    assert done.returncode == 4
    assert "2 agents were to connect to 127.0.0.1:" in done.stderr and "none came" in done.stderr


def test_an_agent_without_a_head_says_so(tmp_path, run_prism):
    (tmp_path / "token").write_bytes(TOKEN)
    (tmp_path / "token").chmod(0o600)
    done = run_prism("agent", "--connect", "127.0.0.1:1", "--token-file", "token", "--wait", 1)
    assert done.returncode == 4
    assert "no head answers at 127.0.0.1:1" in done.stderr
