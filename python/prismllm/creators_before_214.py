"""Taking over backends in torch 2.11 to 2.13, where _new_process_group_helper makes the builtin ones itself.

The helper is wrapped: the names in a backend string are replaced by aliases that are registered with our creator, and
what the program can ask for afterwards is put back."""

from __future__ import annotations

import functools
from collections import namedtuple

import torch
import torch.distributed.distributed_c10d as c10d

from prismllm import creators

_ALIAS = "prism_for_"
_Builtin = namedtuple("_Builtin", "creator_fn extended_api")


class _Group:
    """Stands for a ProcessGroup that is being made."""


def _gloo(options, _):
    backend = c10d.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
    backend.options.global_ranks_in_group = options.global_ranks_in_group
    backend.options.group_name = options.group_id
    return backend


def _nccl(options, backend_options):
    if backend_options is None:
        backend_options = c10d.ProcessGroupNCCL.Options()
    backend_options._timeout = options.timeout
    backend_options.global_ranks_in_group = options.global_ranks_in_group
    backend_options.group_name = options.group_id
    return c10d.ProcessGroupNCCL(options.store, options.group_rank, options.group_size, backend_options)


def original(name: str):
    """The creator that the builtin branch of the helper amounts to."""
    builtin = {"gloo": _gloo, "nccl": _nccl}.get(name)
    if builtin is not None:
        return _Builtin(builtin, True)
    return creators.plugin_of(name)


def name_prism() -> None:
    """Registers "prism" without a look at the devices, which `import torch` has no right to."""
    creators.register_creator("prism", "prism", ["cpu", "cuda"])


def take_over() -> None:
    for name in ("gloo", "nccl", "prism"):
        alias = name if name == "prism" else _ALIAS + name
        creators.register_creator(alias, name, ["cpu", creators.accelerator() or "cuda"])
    from prismllm import _c10d

    # Members make a new communicator (creators are not told what to split from), so others must not join in a split.
    _c10d.PrismBackend.perform_nocolor_split = lambda self, device: None
    helper = c10d._new_process_group_helper
    c10d._new_process_group_helper = functools.partial(_make_group, helper)


def _make_group(helper, group_size, group_rank, global_ranks_in_group, backend, *args, **kwargs):
    config = c10d.BackendConfig(c10d.Backend(str(backend)))
    names = config.get_device_backend_map()
    served = {device: _ALIAS + name if name in ("gloo", "nccl") else name for device, name in names.items()}
    if not creators.accelerator():  # the backends of accelerators are served on the CPU
        served.setdefault("cpu", next(iter(served.values())))
    ours = ",".join(f"{device}:{name}" for device, name in served.items())
    creators.group_in_making = _Group()
    group, store = helper(group_size, group_rank, global_ranks_in_group, c10d.Backend(ours), *args, **kwargs)
    if not isinstance(group, c10d.ProcessGroup):
        return group, store
    c10d._world.pg_map[group] = (backend, c10d._world.pg_map[group][1])
    c10d._world.pg_backend_config[group] = str(config)
    types = c10d.ProcessGroup.BackendType
    if creators.accelerator() == "cuda" and "nccl" in names.values() and len(set(names.values())) > 1:
        # Both are CUSTOM, and setBackend() keeps one instance per type.
        group._register_backend(torch.device("cuda"), types.NCCL, creators.latest("nccl"))
    group._set_default_backend(types.CUSTOM)
    return group, store
