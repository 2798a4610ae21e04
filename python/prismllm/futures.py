"""Waits in futures that Python sees: torch.futures.Future.wait sleeps in C++, where nothing can be hooked, so the call
itself is wrapped. Under capture the slot goes back meanwhile; a recorder sees a wait."""

import functools

import torch


def install():
    from prismllm import _c10d

    original = torch._C.Future.wait
    if getattr(original, "_prism", False):
        return

    @functools.wraps(original)
    def wait(self):
        if not _c10d.watches_waits():
            return original(self)
        return _c10d.wait_future(self, functools.partial(original, self))

    wait._prism = True
    torch._C.Future.wait = wait
