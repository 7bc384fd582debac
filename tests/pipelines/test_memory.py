"""Memory that an image frees is reused for the next: the system need not clear pages for each image."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import pathlib, resource, sys
from clearspan.common.allocator import keep_pictures
from clearspan.pipelines.media.pictures import shrunk

assert keep_pictures()
picture = pathlib.Path(sys.argv[1]).read_bytes()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
shrunk(picture, 128)
before = faults()
for _ in range(20):
    shrunk(picture, 128)
print((faults() - before) // 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such choice")
def test_pictures_take_no_new_pages(shared_data: Path) -> None:
    picture = min((shared_data / "images" / "caltech60" / "ant").iterdir())
    run = subprocess.run([sys.executable, "-c", RUN, picture], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 5
