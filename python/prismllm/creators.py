"""The creators of process group backends: ours in the place of torch's, which stay reachable for the real route.

Written against torch.distributed.distributed_c10d of 2.14 and later, where every backend is a registered creator; see
creators_before_214.py for earlier versions."""

from __future__ import annotations

import contextlib
import functools
import weakref

import torch.distributed.distributed_c10d as c10d

from prismllm import takeover

# Names that programs ask for. Those for an accelerator are served on the CPU where there is none.
_ACCELERATOR_NAMES = ("nccl", "nccl2", "nccl-lazy", "nccl-legacy", "nccl4py", "xccl")
_NAMES = ("gloo", "ucc", *_ACCELERATOR_NAMES)  # not mpi: its ranks are those of mpirun

# From 2.14 on; before, the helper that makes groups knew the builtin ones by name.
_ALL_ARE_REGISTERED = hasattr(c10d.Backend, "_ensure_backend_registered")

_originals: dict[str, object] = {}  # name -> torch's own plugin entry
_inits = 0  # default groups made so far: group names start again with each
_last_default = None  # weakref to the default group's ProcessGroup
_last_key = ""
group_in_making = None  # stands for the ProcessGroup, where the creator is not told it (before 2.14)
_last_instances: dict[str, object] = {}  # by inner backend's name, weak references


@functools.cache
def accelerator() -> str | None:
    import torch

    found = torch.accelerator.current_accelerator(check_available=True)
    return found.type if found else None


def register(name: str) -> None:
    """Registers our creator under `name`; torch's own is kept."""
    backend_type = None
    devices = ["cpu", "cuda"]
    if name in _originals and (accelerator() or name not in _ACCELERATOR_NAMES):
        devices = list(c10d.Backend.backend_capability[name])
        if name in _ACCELERATOR_NAMES:
            backend_type = c10d.Backend.backend_type_map[name]
    elif name == "prism" and accelerator():
        devices = [accelerator()]
    register_creator(name, name, devices, backend_type)


def register_creator(alias: str, name: str, devices: list[str], backend_type=None) -> None:
    """A backend `alias` whose groups are made as for a program that asked for `name`. Never of type GLOO: DDP's logger
    casts what it finds under it to ProcessGroupGloo."""
    before = dict(c10d.Backend.default_device_backend_map)
    of_type = {} if backend_type is None else {"_backend_type": backend_type}
    c10d.Backend.register_backend(
        alias, functools.partial(_create, name), extended_api=True, devices=devices, **of_type
    )
    c10d.Backend.default_device_backend_map.clear()
    c10d.Backend.default_device_backend_map.update(before)
    # torch's flight recorder attaches a hook (17 to 29 us per operation) to what does not record itself.
    if hasattr(c10d, "_FR_SELF_RECORDING_BACKENDS") and not accelerator():
        c10d._FR_SELF_RECORDING_BACKENDS.add(name)


def take_over(capture: bool) -> None:
    if capture:
        # TORCH_DISTRIBUTED_DEBUG=DETAIL checks collectives with a Gloo group of its own; the coordinator checks them.
        c10d._create_process_group_wrapper = lambda wrapped_pg, **_: wrapped_pg
    if not _ALL_ARE_REGISTERED:
        from prismllm import creators_before_214

        return creators_before_214.take_over()
    for name in _NAMES:
        with contextlib.suppress(RuntimeError):  # named by torch, but not part of this build
            c10d.Backend._ensure_backend_registered(name)
        if (plugin := c10d.Backend._plugins.get(name.upper())) is not None:
            _originals[name] = plugin
            register(name)
    register("prism")


def _original(name: str):
    if not _ALL_ARE_REGISTERED:
        from prismllm import creators_before_214

        return creators_before_214.original(name)
    if name not in _originals:
        c10d.Backend._ensure_backend_registered(name)
        _originals[name] = plugin_of(name)
    return _originals[name]


def plugin_of(name: str):
    if (plugin := c10d.Backend._plugins.get(name.upper())) is None:
        raise ValueError(f"torch.distributed has no backend '{name}' here")
    return plugin


def _inner_name(name: str) -> str:
    name = takeover.wanted_backend() or name
    if name == "prism":
        return "nccl" if accelerator() == "cuda" else "gloo"
    if name in _ACCELERATOR_NAMES and not accelerator():
        takeover.note(f"{name} was asked for; this machine has no accelerator, so it was served on the CPU")
        return "gloo"
    return name


def _create(name: str, options, backend_options=None):
    global _inits, _last_default, _last_key
    inner_name = _inner_name(name)
    if not takeover.check_may_create_group():
        return _call(_original(inner_name), options, backend_options)
    group = options.process_group if _ALL_ARE_REGISTERED else group_in_making
    if not options.global_ranks_in_group and (_last_default is None or _last_default() is not group):
        _inits += 1
        _last_default = weakref.ref(group)
    key = key_of(options.group_id)
    if key != _last_key:
        _last_key = key
        _last_instances.clear()
    # One instance per group however many devices it serves: setBackend() is keyed by type and would drop the second.
    if (known := latest(inner_name)) is not None:
        return known
    backend = _make(name, key, inner_name, options, backend_options)
    _last_instances[_shared_by(inner_name)] = weakref.ref(backend)
    return backend


def key_of(name: str) -> str:
    """Unique in the job: torch's names begin again with each default group."""
    return (f"init{_inits}/" if _inits > 1 else "") + name


def _shared_by(inner_name: str) -> str:
    return "" if takeover.route() == "capture" else inner_name


def latest(inner_name: str):
    """The instance of the group in the making that serves this backend, or None."""
    found = _last_instances.get(_shared_by(inner_name))
    return found() if found else None


def _make(name: str, key: str, inner_name: str, options, backend_options):
    from prismllm import _c10d

    members = options.global_ranks_in_group or list(range(options.group_size))
    if takeover.route() == "capture":
        if members[options.group_rank : options.group_rank + 1] != [takeover.rank()]:
            raise ValueError(
                f"group '{key}': this process is rank {takeover.rank()} of the job and joins as rank "
                f"{options.group_rank} of {members}; accepted under capture: the ranks that RANK says"
            )
        timeout = takeover.group_timeout or options.timeout
        return _c10d.PrismBackend(name, key, options.group_rank, members, timeout, _coalesces(name))
    if isinstance(getattr(options, "split_from", None), _c10d.PrismBackend):
        options.split_from = options.split_from.inner  # builtin creators assert its type
    if inner_name != name:
        backend_options = None  # those of another backend
    inner = _call(_original(inner_name), options, backend_options)
    if _last_instances:  # a second backend of the same group, for another device
        key = f"{key}:{inner_name}"
    return _c10d.PrismBackend(name, key, options.group_rank, members, inner)


def _coalesces(name: str) -> bool:
    """Whether the asked-for backend has startCoalescing; decides how many works batch_isend_irecv returns."""
    return name in _ACCELERATOR_NAMES or (name == "prism" and accelerator() is not None)


def _call(plugin, options, backend_options):
    if plugin.extended_api:
        return plugin.creator_fn(options, backend_options)
    return plugin.creator_fn(options.store, options.group_rank, options.group_size, options.timeout)
