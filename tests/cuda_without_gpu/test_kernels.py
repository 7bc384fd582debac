"""SDPA's kernels on an H100 or H200, as torch itself chooses them."""

import re
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from clearspan.common.encoder.attention import WITH_MASK, sdpa_kernel
from tests.cuda_without_gpu.kernels import chosen

TABLE = """
dtype     head  keys  mask  dropout  of all     with a mask
float32   16    17    none  0        efficient  efficient
float32   64    17    full  0.1      efficient  efficient
float32   100   17    full  0        efficient  efficient
float32   50    17    full  0        math       math
float32   512   17    none  0        efficient  efficient
bfloat16  16    17    none  0        cuDNN      efficient
bfloat16  64    17    full  0        cuDNN      efficient
bfloat16  64    17    row   0        cuDNN      efficient
bfloat16  64    1     none  0        flash      efficient
bfloat16  64    1     full  0        efficient  efficient
bfloat16  64    17    none  0.1      flash      efficient
bfloat16  64    17    full  0.1      efficient  efficient
bfloat16  64    17    full  0.125    cuDNN      efficient
bfloat16  100   17    none  0        flash      math
bfloat16  100   17    full  0        math       math
bfloat16  256   17    none  0        cuDNN      efficient
bfloat16  256   17    full  0        cuDNN      efficient
bfloat16  264   17    none  0        efficient  efficient
float16   64    17    none  0        cuDNN      efficient
float16   100   17    full  0        math       math
"""
"""What `torch._fused_sdp_choice` answered in torch 2.13.0 with CUDA 13.0 and cuDNN 9.20, of tensors without memory and
with a device of capability 9.0 that only exists: of all kernels, and of those that Clearspan allows with a mask.
"""
LINES = [re.split(r"  +", line) for line in TABLE.strip().splitlines()][1:]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_sdpa_takes_the_kernel_that_torch_takes(line: list[str]) -> None:
    dtype, head, keys, mask, dropout, of_all, with_mask = line
    query = torch.empty(2, 4, 17, int(head), dtype=getattr(torch, dtype), device="meta")
    key = query.new_empty(2, 4, int(keys), int(head))
    masks = {"none": None, "full": query.new_empty(2, 1, 17, int(keys)), "row": query.new_empty(2, 1, 1, int(keys))}
    contexts: list[tuple[AbstractContextManager[None], str]] = [
        (nullcontext(), of_all),
        (sdpa_kernel(WITH_MASK), with_mask),
    ]
    for context, kernel in contexts:
        with context:
            assert chosen(query, key, masks[mask], float(dropout)) == kernel
