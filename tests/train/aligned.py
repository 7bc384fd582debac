"""`train/run.py`, but a CPU too pads the vocabulary to a multiple of ALIGNED, as CUDA does."""

import os
import sys

from clearspan.train import run
from clearspan.train.model import chunked_cross_entropy

chunked_cross_entropy.ALIGNED["cpu"] = int(os.environ["ALIGNED"])
exit_code = run.main()
sys.stdout.flush()
os._exit(exit_code)
