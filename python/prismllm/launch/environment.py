"""The environment of a rank: the variables that torchrun sets, so that a program cannot tell the difference."""

from __future__ import annotations

import socket


def rank_environment(rank: int, world_size: int, ranks_per_node: int, master: tuple[str, int]) -> dict[str, str]:
    per_node = ranks_per_node or world_size
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank % per_node),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_RANK": str(rank // per_node),
        "GROUP_WORLD_SIZE": str(world_size // per_node),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 hosts the store
        "TORCHELASTIC_ERROR_FILE": "",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def reserve_port() -> socket.socket:
    """A TCP port that rank 0 can listen on while this socket is open, and that nobody is given by chance meanwhile:
    neither another job's listener nor, before rank 0 listens, a rank that looks for it (which would then meet itself).
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the store's listener sets it
    reserved.bind(("", 0))
    return reserved
