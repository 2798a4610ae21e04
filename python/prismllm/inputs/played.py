"""What peers sent in a run that the same command has made a moment ago, from the same program: as trustworthy as the
program is. So objects are handed on as well, as the bytes that they were. A folder that a user names (recorded(),
--data) does not come here: what unpickles there stays ours."""

from __future__ import annotations

import os
from collections import Counter

import torch

from prismllm.data import WHOLE_NUMBERS
from prismllm.inputs.communication import Communication
from prismllm.inputs.generators import Recorded
from prismllm.inputs.objects import brings_objects
from prismllm.inputs.rule import Rule


def rule_of(path: str, whole_numbers: bool) -> Rule:
    """All that peers send is what they sent then; or whole numbers and objects alone. ValueError where the folder is
    not this user's alone."""
    made = Rule("recorded a moment ago", path, {"dtype": list(WHOLE_NUMBERS)} if whole_numbers else {}, optional=True)
    recording = Played(path)
    made.answer, made.recorded = recording.answer, recording
    return made


class Played(Recorded):
    def __init__(self, path: str):
        status = os.stat(path)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise ValueError(f"'{path}' can be reached by others; accepted: a folder of this user's with mode 0700")
        super().__init__(path)
        self._received: Counter[tuple[str, int, int]] = Counter()  # messages, by group, sender's group rank and tag

    def answer(self, communication: Communication) -> list[torch.Tensor]:
        c = communication
        if c.op == "recv":
            if c.peer < 0:
                c.source, c.number = self._met(c)
            self._received[c.group, c.senders()[0], c.tag] = c.number + 1
        return c.result(lambda peer: [self(c, peer, like) for like in c.sent_by(peer)], same=False)

    def _met(self, c: Communication) -> tuple[int, int]:
        """(sender, number) of what a receive from anybody brings: the sender is one whose next message is of this
        size, of whom fewest have come so far. With whom it met in the run decides no structure."""
        taken = sorted((self._received[c.group, peer, c.tag], peer) for peer in range(c.size) if peer != c.group_rank)
        for number, peer in taken:
            try:
                sent = self.data.message(c.group, c.members[peer], c.rank, c.tag, number).inputs(c.members[peer])
            except KeyError:
                continue
            if [one.torch().numel() for one in sent.values()] == [like.numel() for like in c.outputs]:
                return peer, number
        raise ValueError(f"'{self.path}' keeps no more messages that it could receive from anybody")

    def _like(self, sent: torch.Tensor, communication: Communication, like: torch.Tensor) -> torch.Tensor:
        """Objects have the room of the largest, which may be this rank's own: what stands behind theirs is not read."""
        if sent.numel() != like.numel() and like.dtype == torch.uint8 and brings_objects(communication):
            return torch.cat([sent, sent.new_zeros(max(like.numel() - sent.numel(), 0))])[: like.numel()].view_as(like)
        return super()._like(sent, communication, like)
