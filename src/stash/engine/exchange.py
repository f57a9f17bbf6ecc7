"""The exchange switch: a process group that passes collectives on or completes them at once.

Registered as a PyTorch backend of its own (public `Backend.register_backend`), it becomes the
default group of a training script and carries DDP's buckets and the script's own collectives.
"""

# PyTorch declares many of these methods twice, by tensor and by list: ours take both.
# mypy: disable-error-code="override"

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

#: Must not be a name that PyTorch knows: DDP's logger would look for that backend inside the group.
BACKEND = "stash"
REAL_BACKENDS = ("gloo", "nccl")
#: Older releases (2.6) forget a handle's Python part while their C++ part still asks it. DDP asks
#: within one backward pass, so the last handles are kept: more than any model has buckets.
HANDLES_KEPT = 1024


class _Completed(dist.Work):
    """The handle of a collective that moved nothing."""

    def __init__(self, result: Sequence[torch.Tensor]) -> None:
        super().__init__()
        devices: list[int | str | torch.device] = sorted(
            {t.device for t in result if t.device.type == "cuda"}, key=str
        )
        self._future: torch.futures.Future[Any] = torch.futures.Future(devices=devices)
        self._future.set_result(list(result))

    def wait(self, timeout: Any = None) -> bool:
        """Nothing is under way."""
        return True

    def is_completed(self) -> bool:
        """From the start."""
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """What DDP's reducer waits for."""
        return self._future


class _Watched:
    """The real group, with every collective told to whoever watches."""

    def __init__(self, real: Any, note: Callable[[str], None]) -> None:
        self.real = real
        self._note = note

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.real, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._note(name.strip("_").removesuffix("_base"))
            return method(*args, **kwargs)

        return call


class _ByDevice:
    """NCCL for what lies on GPUs, gloo for what lies in host memory.

    So do PyTorch's own groups of both. Objects that a script sends around lie in host memory here
    whichever backend it asked for: PyTorch cannot see which devices a group of ours serves.
    """

    def __init__(self, gpus: Any, host: Any) -> None:
        self._gpus = gpus
        self._host = host

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            tensor = _first_tensor(args)
            on_host = tensor is not None and tensor.device.type == "cpu"
            return getattr(self._host if on_host else self._gpus, name)(*args, **kwargs)

        return call


class SwitchableGroup(dist.ProcessGroup):
    """Forwards every collective to the real group while exchange is on.

    Some of the workers can exchange among themselves while the others are held: on a real group
    of their own, made from the same store.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        inner: Any,
        global_ranks: Sequence[int] = (),
        make_inner: Callable[[str, int, int], Any] | None = None,
        real_backend: str = "gloo",
    ) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.real_backend = real_backend
        self._whole = self._inner = inner
        self._rank = rank
        self._size = size
        self._global_ranks = tuple(global_ranks) or tuple(range(size))
        self._make_inner = make_inner
        self._parts: dict[tuple[int, ...], Any] = {}
        self._members = tuple(range(size))  # ranks of this group that exchange
        self.on = True
        self._handles: deque[_Completed] = deque(maxlen=HANDLES_KEPT)
        self._name = ""

    def turn(self, on: bool, global_ranks: Sequence[int] | None = None) -> None:
        """Exchange among these workers (none: all of them), or not at all."""
        among = self._members_among(global_ranks)
        self.on = on and (len(among) > 1 or self._size == 1)
        if self.on:
            self._members = among
            self._inner = self._whole if len(among) == self._size else self._part(among)

    def _part(self, members: tuple[int, ...]) -> Any:
        """The real group of some workers; they all ask for it first at the same switch."""
        if members not in self._parts:
            assert self._make_inner is not None
            name = "part-" + "-".join(str(member) for member in members)
            self._parts[members] = self._make_inner(name, members.index(self._rank), len(members))
        return self._parts[members]

    def _members_among(self, global_ranks: Sequence[int] | None) -> tuple[int, ...]:
        if global_ranks is None:
            return tuple(range(self._size))
        wanted = set(global_ranks)
        return tuple(own for own, rank in enumerate(self._global_ranks) if rank in wanted)

    @property
    def _is_part(self) -> bool:
        """Whether only some exchange now; what is laid out by rank cannot be passed on then."""
        return len(self._members) < self._size

    def _rooted(self, options: Any) -> Any | None:
        """Options with their root as a rank of the real group; none where it is held."""
        if not self._is_part:
            return options
        if options.rootRank not in self._members:
            return None
        changed = type(options)()
        for name in ("rootTensor", "timeout", "asyncOp", "reduceOp"):
            if hasattr(options, name):
                setattr(changed, name, getattr(options, name))
        changed.rootRank = self._members.index(options.rootRank)
        return changed

    # PyTorch keeps a group's name in its backends, of which this one has none. Device meshes, and
    # with them FSDP2, ask for it.

    def _set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def group_name(self) -> str:
        """The name under which PyTorch has registered this group."""
        return self._name

    def watch(self, note: Callable[[str], None] | None) -> None:
        """Tell the name of every collective that passes; none to stop."""
        real = self._inner.real if isinstance(self._inner, _Watched) else self._inner
        self._inner = real if note is None else _Watched(real, note)

    def _completed(self, result: Sequence[torch.Tensor]) -> _Completed:
        handle = _Completed(result)
        self._handles.append(handle)
        return handle

    def getBackendName(self) -> str:  # noqa: N802 (PyTorch's own name)
        """The name that PyTorch's logging asks for."""
        return BACKEND

    def allreduce(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """Sum over workers, or keep the local values."""
        if self.on:
            return self._inner.allreduce(_listed(tensors), *args, **kwargs)
        return self._completed(_listed(tensors))

    def allreduce_coalesced(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """As allreduce, for several tensors."""
        if self.on:
            return self._inner.allreduce_coalesced(tensors, *args, **kwargs)
        return self._completed(tensors)

    def broadcast(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """Copy from one worker, or keep the local values."""
        return self._from_root("broadcast", tensors, *args, **kwargs)

    def reduce(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """Sum to one worker, or keep the local values."""
        return self._from_root("reduce", tensors, *args, **kwargs)

    def _from_root(self, name: str, tensors: Any, options: Any = None, **kwargs: Any) -> Any:
        if self.on and options is not None:
            options = self._rooted(options)
            if options is not None:
                return getattr(self._inner, name)(_listed(tensors), options, **kwargs)
        elif self.on:
            return getattr(self._inner, name)(_listed(tensors), **kwargs)
        return self._completed(_listed(tensors))

    # Below, results are laid out by rank: among some of the workers they stay local.

    def allgather(self, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Collect from all workers, or fill every slot with the local tensor."""
        if self.on and not self._is_part:
            return self._inner.allgather(outputs, inputs, *args, **kwargs)
        for slots, local in zip(outputs, inputs, strict=True):
            for slot in slots:
                slot.copy_(local)
        return self._completed(inputs)

    def _allgather_base(self, output: Any, local: Any, *args: Any, **kwargs: Any) -> Any:
        if self.on and not self._is_part:
            return self._inner._allgather_base(output, local, *args, **kwargs)
        output.view(self._size, -1).copy_(local.reshape(1, -1).expand(self._size, -1))
        return self._completed([output])

    def all_gather_single(self, output: Any, local: Any, *args: Any, **kwargs: Any) -> Any:
        """Newer name of the same collective."""
        return self._allgather_base(output, local, *args, **kwargs)

    def gather(self, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Collect on one worker; off, the root sees the local tensor in every slot."""
        if self.on and not self._is_part:
            return self._inner.gather(outputs, inputs, *args, **kwargs)
        for slots in outputs:
            for slot in slots:
                slot.copy_(inputs[0])
        return self._completed(inputs)

    def scatter(self, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Deal out from one worker; off, only the root has something to keep."""
        if self.on and not self._is_part:
            return self._inner.scatter(outputs, inputs, *args, **kwargs)
        for output, parts in zip(outputs, inputs, strict=False):
            output.copy_(parts[self._rank])
        return self._completed(outputs)

    def reduce_scatter(self, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Sum and deal out, or keep the local part."""
        if self.on and not self._is_part:
            return self._inner.reduce_scatter(outputs, inputs, *args, **kwargs)
        for output, parts in zip(outputs, inputs, strict=True):
            output.copy_(parts[self._rank])
        return self._completed(outputs)

    def _reduce_scatter_base(self, output: Any, whole: Any, *args: Any, **kwargs: Any) -> Any:
        if self.on and not self._is_part:
            return self._inner._reduce_scatter_base(output, whole, *args, **kwargs)
        output.copy_(whole.view(self._size, -1)[self._rank].view_as(output))
        return self._completed([output])

    def reduce_scatter_single(self, output: Any, whole: Any, *args: Any, **kwargs: Any) -> Any:
        """Newer name of the same collective."""
        return self._reduce_scatter_base(output, whole, *args, **kwargs)

    def alltoall_base(self, output: Any, local: Any, *args: Any, **kwargs: Any) -> Any:
        """Exchange parts between all workers, or keep the local ones."""
        if self.on and not self._is_part:
            return self._inner.alltoall_base(output, local, *args, **kwargs)
        output.view(-1).copy_(local.reshape(-1)[: output.numel()])
        return self._completed([output])

    def barrier(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for all workers, or for nobody."""
        if self.on:
            return self._inner.barrier(*args, **kwargs)
        return self._completed([])

    def send(self, *args: Any, **kwargs: Any) -> Any:
        """Point to point is the script's own business and always real."""
        return self._inner.send(*args, **kwargs)

    def recv(self, *args: Any, **kwargs: Any) -> Any:
        """Point to point is the script's own business and always real."""
        return self._inner.recv(*args, **kwargs)


#: How a group of `BACKEND` is made: by the last that asked for it.
_create: list[Callable[[Any, Any], SwitchableGroup]] = []


def register(announce: Callable[[SwitchableGroup], None], real_backend: Callable[[], str]) -> None:
    """Make `BACKEND` known to PyTorch; every group created with it from now on is announced."""

    def create(options: Any, backend_options: Any) -> SwitchableGroup:
        name = real_backend()
        c10d: Any = dist  # typed in part only

        def make(part: str, rank: int, size: int) -> Any:
            store = c10d.PrefixStore(part, options.store)
            return _real_group(name, store, rank, size, options.timeout, None)

        whole = _real_group(
            name,
            options.store,
            options.group_rank,
            options.group_size,
            options.timeout,
            backend_options,
        )
        group = SwitchableGroup(
            options.group_rank, options.group_size, whole, options.global_ranks_in_group, make, name
        )
        announce(group)
        return group

    _create[:] = [create]
    if not hasattr(dist.Backend, BACKEND.upper()):  # torch 2.6 refuses to hear it twice
        dist.Backend.register_backend(
            BACKEND,
            lambda options, more: _create[0](options, more),
            extended_api=True,
            devices=["cpu", "cuda"],
        )


def _real_group(
    name: str, store: Any, rank: int, size: int, timeout: Any, backend_options: Any
) -> Any:
    """The group that moves bytes."""
    if name == "gloo":
        return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    c10d: Any = dist  # typed in part only
    return _ByDevice(
        _nccl_group(c10d.PrefixStore("gpus", store), rank, size, timeout, backend_options),
        dist.ProcessGroupGloo(c10d.PrefixStore("host", store), rank, size, timeout=timeout),
    )


def _nccl_group(store: Any, rank: int, size: int, timeout: Any, backend_options: Any) -> Any:
    """Never run by its authors: there was no GPU to run it on."""
    nccl = backend_options or dist.ProcessGroupNCCL.Options()
    nccl._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, nccl)


def _listed(tensors: Any) -> list[torch.Tensor]:
    """PyTorch passes one tensor or a list of them, depending on who calls."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _first_tensor(values: Any) -> torch.Tensor | None:
    """Of a collective's arguments: tensors, lists of them, or lists of such lists."""
    if isinstance(values, torch.Tensor):
        return values
    parts = values if isinstance(values, list | tuple) else ()
    return next((found for part in parts if (found := _first_tensor(part)) is not None), None)
