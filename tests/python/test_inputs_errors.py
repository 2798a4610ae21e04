"""What goes wrong in solo capture is said once, with the rule, the communication and the rank."""

import os

import pytest

from prismllm.inputs.loading import RulesError, load

REDUCE = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\ndist.all_reduce(torch.ones(4))\n"


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (".peers(lambda c, p, like: torch.zeros(3))", 3, "it gave a float32 tensor of [3] on cpu; accepted: float32 "
                                                         "of [4] on cpu"),
        (".peers(lambda c, p, like: like.double())", 3, "it gave a float64 tensor of [4] on cpu"),
        (".peers(lambda c, p, like: like.to('meta'))", 3, "it gave a float32 tensor of [4] on meta"),
        (".peers(lambda c, p, like: exit(0))", 3, "SystemExit: 0"),
        (".peers(lambda c, p, like: like.to_sparse())", 3, "layout torch.sparse_coo; accepted: torch.strided"),
        (".peers(lambda c, p, like: 'x')", 3, "it gave a str; accepted: a tensor or a number"),
        (".peers(lambda c, p, like: 1 / 0)", 3, "ZeroDivisionError: division by zero"),
        (".result(lambda c: [])", 3, "it gave 0 tensors; accepted: 1"),
        ("", 2, "has no answer; give it one with .peers() or .result()"),
    ],
)  # fmt: skip
def test_a_rule_that_answers_wrongly_is_named_with_its_communication(run_prism, rules, tmp_path, text, code, says):
    (tmp_path / "p.py").write_text(REDUCE)
    chosen = rules(f"inputs.rule('bad'){text}")
    done = run_prism("capture", "-n", 2, "--slots", 1, "--inputs", chosen, "-o", "t.prism", "p.py")
    assert done.returncode == code
    assert says in done.stderr and f"rule 'bad' ({chosen}:3)" in done.stderr
    if code == 3:
        assert "all_reduce number 0 of rank 0, group '0' (default_pg), float32 [4], at " in done.stderr
    assert not (tmp_path / "t.prism").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("inputs.rule(", "SyntaxError"),
        ("raise KeyError('no such')", "KeyError: 'no such'"),
        ("inputs.rule('x', oop='send')", "unknown condition 'oop'; accepted: op, group,"),
        ("inputs.rule('x', when=3)", "when=3; accepted: a function of the communication"),
        ("inputs.integers(3, 3)", "integers(3, 3); accepted: low < high"),
        ("inputs.recorded('/nowhere')", "/nowhere"),
        ("exit(0)", "SystemExit"),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "threads"),
        ("inputs.rule('nothing', op='scatter').peers(0)", "fits nothing, in the 2 ranks that ran"),
    ],
)
def test_rules_that_cannot_be_used_are_told_before_anything_is_written(run_prism, rules, tmp_path, text, says):
    (tmp_path / "p.py").write_text(REDUCE)
    done = run_prism("capture", "-n", 2, "--slots", 1, "--inputs", rules(text), "-o", "t.prism", "p.py")
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and "rules.py" in done.stderr
    assert not (tmp_path / "t.prism").exists()


def test_an_optional_rule_may_fit_nothing(captured, rules):
    captured(REDUCE, "--inputs", rules("inputs.rule('x', op='scatter', optional=True).peers(0)"), world=2)


def test_recorded_data_of_another_world_is_refused(run_prism, captured, rules, tmp_path):
    captured(REDUCE, "--data", tmp_path / "data", world=3)
    chosen = rules(f"inputs.rule('r').peers(inputs.recorded({str(tmp_path / 'data')!r}))")
    done = run_prism("capture", "-n", 2, "--inputs", chosen, "program.py")
    assert done.returncode == 2
    assert f"rule 'r' ({chosen}:3): '{tmp_path / 'data'}' is of 3 ranks; accepted: of 2" in done.stderr


def test_a_failure_that_the_program_catches_still_ends_the_run(run_prism, rules, tmp_path):
    caught = REDUCE.replace("dist.all", "try:\n    dist.all") + "except RuntimeError:\n    pass\n"
    (tmp_path / "p.py").write_text(caught)
    done = run_prism("capture", "-n", 2, "--inputs", rules("inputs.rule('bad').peers(lambda c, p, like: 'x')"), "p.py")
    assert done.returncode == 3 and "rule 'bad'" in done.stderr


def test_a_key_that_another_rank_would_set_is_named_at_once(run_prism, tmp_path):
    (tmp_path / "p.py").write_text(
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "store = dist.distributed_c10d._get_default_store()\n"
        "store.set(f'mine{dist.get_rank()}', 'x')\n"
        "store.get(f'mine{dist.get_rank()}')\n"
        "store.get('mine0')\n"
    )
    done = run_prism("capture", "-n", 2, "--slots", 1, "--inputs", "builtin", "p.py")
    assert done.returncode == 3
    assert "rank 1 runs alone and waits for the store's key" in done.stderr and "mine0'" in done.stderr


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("inputs.rule('x', op=5)", "op=5; accepted: text with * and ?, or several"),
        ("inputs.rule('x', op='brodcast')", "op='brodcast'; accepted: of none, all_reduce, "),
        ("inputs.rule('x', reduce_op='maximum')", "reduce_op='maximum'; accepted: of none, sum"),
        ("inputs.rule('x', dtype='int46')", "dtype='int46'; accepted: a torch.dtype, its name, or several"),
        ("inputs.rule('x', number=1.5)", "number=1.5; accepted: a number, several, or a range"),
        ("inputs.rule('x', rank=True)", "rank=True; accepted: a number, several, or a range"),
        ("inputs.rule('x', rank=(i for i in range(2)))", "accepted: a number, several, or a range"),
        ("inputs.rule('x', rank=7).peers(0)", "rank=7; accepted: 0 to 1"),
        ("inputs.rule('x', shape=4)", "shape=4; accepted: a tuple of sizes, None for any"),
        ("inputs.rule('x', optional='no')", "optional='no'; accepted: True, False"),
        ("inputs.rule('x').peers('x')", ".peers('x'); accepted: a number or a function"),
        ("inputs.rule('x').peers(inputs.zeros)", ".peers(zeros); accepted: a function of (communication, peer, like)"),
        ("inputs.rule('x').result(inputs.like_mine())", "it says what peers put in; accepted: to give it to .peers()"),
        ("inputs.rule('x').peers(0).result(3)", "has an answer already; accepted: one .peers() or .result()"),
        ("inputs.integers(0, 2**70)", "accepted: low < high, both of 64 bits"),
        ("inputs.store('k', 5)", "store('k', 5); accepted: text, bytes or a function of the key"),
        ("inputs.classes(lambda rank: 1 / 0)", "ZeroDivisionError"),
        ("inputs.classes(lambda rank: [rank])", "unhashable type: 'list'"),
    ],
)
def test_a_rule_that_could_never_hold_is_told_while_the_file_is_read(tmp_path, rule, says):
    (tmp_path / "rules.py").write_text(f"from prismllm import inputs\n{rule}\n")
    with pytest.raises(RulesError) as told:
        load(str(tmp_path / "rules.py"), 2)
    assert says in str(told.value) and "rules.py" in str(told.value)
    assert "prismllm/inputs" not in str(told.value)  # nothing of ours in the traceback


@pytest.mark.parametrize(
    "work",
    [
        "def w(c, p=0, like=0):\n    dist.barrier()\n    return 0\ninputs.rule('works').peers(w)",
        "def w(c):\n    dist.barrier()\n    return True\ninputs.rule('works', when=w).peers(0)",
    ],
)
def test_a_rule_does_not_communicate(run_prism, rules, tmp_path, work):
    (tmp_path / "p.py").write_text(REDUCE)
    done = run_prism("capture", "-n", 2, "--slots", 1, "--inputs", rules(f"import torch.distributed as dist\n{work}"),
                     "p.py")  # fmt: skip
    assert done.returncode == 3
    assert "rule 'works'" in done.stderr and "it communicates itself (barrier); accepted: to answer" in done.stderr


@pytest.mark.parametrize("late", ["atexit.register(late)", "threading.Thread(target=late).start()"])
def test_a_rule_that_fails_when_the_program_is_over_fails_the_run(run_prism, rules, tmp_path, late):
    (tmp_path / "p.py").write_text(
        "import atexit, threading, torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "def late():\n    try:\n        dist.all_reduce(torch.ones(5))\n    except RuntimeError:\n        pass\n"
        f"{late}\n"
    )
    bad = rules("inputs.rule('bad', shape=(5,)).result(lambda c: 1 / 0)")
    done = run_prism("capture", "-n", 2, "--inputs", bad, "-o", "t.prism", "p.py")
    assert done.returncode == 3 and "rule 'bad'" in done.stderr and "ZeroDivisionError" in done.stderr
    assert not (tmp_path / "t.prism").exists()


def test_a_program_that_fails_on_invented_values_is_told_of_them(run_prism, rules, tmp_path):
    (tmp_path / "p.py").write_text(REDUCE + "raise SystemExit('lost its way')\n")
    chosen = rules("inputs.rule('all').peers(3)\ninputs.rule('none', shape=(9,)).peers(0)")
    done = run_prism("capture", "-n", 2, "--slots", 1, "--inputs", chosen, "p.py")
    assert done.returncode == 3 and "lost its way" in done.stderr
    assert "all: all_reduce number 0 of rank 0, group '0' (default_pg), float32 [4], at" in done.stderr
    assert "4.0, 4.0, 4.0, 4.0" in done.stderr
    assert f"rule 'none' ({chosen}:4) has fitted nothing so far" in done.stderr


@pytest.mark.parametrize(
    ("poll", "key"),
    [
        ("while not store.check(['ready']): pass", "ready"),
        ("while store.add('count', 0) < 2: pass", "count"),
        ("store.queue_pop('work')", "work"),
    ],
)
def test_a_rank_that_only_looks_for_anothers_key_does_not_do_so_for_ever(run_prism, tmp_path, poll, key):
    (tmp_path / "p.py").write_text(
        "import datetime, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "store = dist.distributed_c10d._get_default_store()\nstore.set_timeout(datetime.timedelta(seconds=1))\n"
        f"store.add('count', 1)\n{poll}\n"
    )
    done = run_prism("capture", "-n", 2, "--slots", 1, "--inputs", "builtin", "p.py")
    assert done.returncode == 3
    assert f"waits for the store's key '{key}'" in done.stderr and f"inputs.store('{key}', ...)" in done.stderr


def test_what_a_recording_holds_is_checked(run_prism, captured, rules, tmp_path):
    captured(REDUCE, "--data", tmp_path / "data", world=2)
    (shard,) = (tmp_path / "data").glob("small-*.prismdata")
    content = shard.read_bytes()
    shard.write_bytes(content.replace(b"\x80\x3f", b"\x80\x40"))
    done = run_prism("capture", "-n", 2, "--inputs", rules(
        f"inputs.rule('r').peers(inputs.recorded({str(tmp_path / 'data')!r}))"), "program.py")  # fmt: skip
    assert done.returncode == 3 and "rule 'r'" in done.stderr and "the content of tensor" in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--inputs", ""], "there is no file ''; accepted: a file of rules, or 'builtin'"),
        (["--inputs", "nowhere.py"], "there is no file 'nowhere.py'; accepted: a file of rules, or 'builtin'"),
        (["--explain"], "--explain tells of --inputs"),
        (["--inputs", "builtin", "--data", "d"], "--data keeps what ranks send each other"),
    ],
)
def test_options_that_do_not_go_together(run_prism, tmp_path, options, says):
    (tmp_path / "p.py").write_text(REDUCE)
    done = run_prism("capture", "-n", 2, *options, "p.py")
    assert done.returncode == 2 and says in " ".join(done.stderr.split())
    assert not os.path.exists(tmp_path / "d")
