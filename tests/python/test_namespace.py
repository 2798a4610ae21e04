"""Network namespaces that cannot be made, or not be left, leave no open file behind."""

import os
import types

import pytest

from prismllm.launch import namespace


@pytest.mark.parametrize("refused", ["unshare", "setns"])
def test_a_namespace_that_is_refused_leaves_no_open_file(monkeypatch, refused):
    def answer(name):
        return lambda *_: -1 if name == refused else 0

    monkeypatch.setattr(namespace, "_libc", types.SimpleNamespace(unshare=answer("unshare"), setns=answer("setns")))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError):
        namespace.create()
    assert os.listdir("/proc/self/fd") == before
