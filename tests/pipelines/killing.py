"""`python killing.py WORKERS when NAME WRAPPER ARGUMENTS`: run the pipeline, and kill it when it publishes NAME.

`when` is "before" (the temporary is written, the name is not there yet) or "after". With one worker the process itself
does the work and dies; with two the worker that publishes NAME kills its parent, the driver, and then itself; with
"2 alone" only itself. The driver's id is left in a file `driver` beside WRAPPER, the interpreter of workers.
"""

import os
import signal
import sys
from pathlib import Path


def arm(when: str, name: str, victims: list[int]) -> None:
    """Make a rename to `name` kill the processes `victims`."""
    replace = Path.replace

    def armed(source: Path, target: Path) -> Path:
        if not str(target).endswith(f"/{name}"):
            return replace(source, target)
        if when == "after":
            replace(source, target)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        raise AssertionError("not killed")

    Path.replace = armed  # type: ignore[method-assign]


def main() -> None:
    if sys.argv[1] == "-m":
        # In place of a worker's interpreter: -m pipelines.execution.worker PARENT.
        driver = [] if os.environ["ALONE"] else [int(sys.argv[3])]
        arm(os.environ["WHEN"], os.environ["NAME"], [*driver, os.getpid()])
        sys.argv = sys.argv[2:]
        from clearspan.pipelines.execution import worker

        worker.main()
        return
    workers, when, name = sys.argv[1:4]
    if workers == "1":
        arm(when, name, [os.getpid()])
    else:
        workers, _, alone = workers.partition(" ")
        os.environ.update(WHEN=when, NAME=name, ALONE=alone)
        wrapper = Path(sys.argv[4])
        wrapper.with_name("driver").write_text(str(os.getpid()))
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} "$@"\n')
        wrapper.chmod(0o755)
        sys.executable = str(wrapper)
    from clearspan.pipelines.__main__ import OTHERS
    from clearspan.pipelines.__main__ import main as run

    sys.exit(run([*sys.argv[5:], *([] if sys.argv[5] in OTHERS else ["--workers", workers])]))


if __name__ == "__main__":
    main()
