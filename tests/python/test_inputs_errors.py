"""What goes wrong in solo capture is said once, with the rule, the communication and the rank."""

import os

import pytest

REDUCE = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\ndist.all_reduce(torch.ones(4))\n"


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (".peers(lambda c, p, like: torch.zeros(3))", 3, "it gave a float32 tensor of [3] on cpu; accepted: float32 "
                                                         "of [4] on cpu"),
        (".peers(lambda c, p, like: like.double())", 3, "it gave a float64 tensor of [4] on cpu"),
        (".peers(lambda c, p, like: like.to('meta'))", 3, "it gave a float32 tensor of [4] on meta"),
        (".peers(lambda c, p, like: 'x')", 3, "it gave a str; accepted: a tensor or a number"),
        (".peers(lambda c, p, like: 1 / 0)", 3, "ZeroDivisionError: division by zero"),
        (".result(lambda c: [])", 3, "it gave 0 tensors; accepted: 1"),
        (".peers(lambda c, p, like: torch.distributed.barrier())", 3, "it communicates itself (barrier)"),
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
        ("inputs.rule('nothing', op='scatter').peers(0)", "fits nothing in the 2 ranks that ran"),
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
    done = run_prism("capture", "-n", 2, "--inputs", rules("inputs.rule('bad').peers('x')"), "p.py")
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
    ("options", "says"),
    [
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
