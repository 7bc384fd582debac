"""CUDA's paths without a GPU: torch runs them on a CPU, and says which kernels a GPU would get.

    device.cpp   a device guard and hooks for CUDA, by which torch and its autograd engine find one GPU
    device.py    builds and loads it before torch, and answers for torch.cuda: H200, streams, events, pinned memory
    tensors.py   tensors with `is_cuda` that compute on the CPU; a ledger of launches, waits, casts and copies
    kernels.py   attention's kernels, and which of them SDPA takes on an H100 or H200
    models.py, training.py   tiny models; steps by the training loop's own code
    probe.py     the measurements, in processes of their own, since a process cannot lose the device again
    answers.py, test_table.py   the rows, and what is expected of them

Everything above the kernels is torch's own code for CUDA: dispatch by device, autocast with its cache, autograd with a
thread for the device, torch.compile's tracing. The numbers are real: the embeddings, losses and gradients are compared
with a CPU's. A wait of the host for the device is noted, and is not an error.

What it cannot tell: whether a kernel of CUDA gives these numbers, or supports sizes and alignments beyond what
`kernels.chosen` knows of torch's rules; times, memory, overlap of streams, memory that is reused too early; what
inductor makes of a graph; NCCL and DeepSpeed; FlashAttention 3. An operator counts as one launch, though some have
several kernels. `python -m benchmarks.cuda` measures these on a GPU.

Torch's build for CPUs and its build with CUDA give the same table, byte for byte (torch 2.13.0, CUDA 13.0 without a
driver). The build with CUDA registers a guard and hooks of its own when torch is imported. The hooks here have a higher
priority, which torch says on stderr, and the guard is registered after the import. To measure with another build, run
these by the Python of a virtual environment that has it:

    OTHER/bin/python -m tests.cuda_without_gpu
    OTHER/bin/python -m pytest tests/cuda_without_gpu
"""
