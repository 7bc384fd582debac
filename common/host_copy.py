"""Copy a tensor from its device to the host's memory, without waiting for what the device computes after it."""

import torch
from torch import Tensor


class HostCopy:
    """An asynchronous copy of a tensor from its device to the host's memory, which begins with the instance.

    Args:
        tensor: the tensor. On CUDA the copy goes to pinned memory and follows the work that the current stream has so
            far; on other devices it is complete at once.
    """

    def __init__(self, tensor: Tensor) -> None:
        on_cuda = tensor.is_cuda
        self._copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_cuda)
        self._copy.copy_(tensor, non_blocking=on_cuda)
        self._done = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]  # torch's
        if self._done is not None:
            self._done.record(torch.cuda.current_stream(tensor.device))

    def is_done(self) -> bool:
        """Return whether the copy is complete."""
        return self._done is None or bool(self._done.query())  # type: ignore[no-untyped-call]  # torch's

    def result(self) -> Tensor:
        """Wait until the copy is complete, and return it."""
        if self._done is not None:
            self._done.synchronize()
        return self._copy
