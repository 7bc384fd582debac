"""Run command lines of a checkout in processes forked from one that has imported the slow packages: `python forked.py`.

    {"argv", "folder", "stdout", "stderr"} a line on stdin -> fork -> exit code, a line on stdout

Packages that every command would import first (Beam, torch, transformers, DeepSpeed) are imported once; nothing of the
checkout is, so that it may name its modules as it likes. PYTHONPATH is the checkout. The first word of `argv` says what
runs: `-c PROGRAM`; FILE.py, in the working folder or in the checkout; the program `deepspeed`; or a command of
`python -m clearspan`.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

PACKAGES = (
    "apache_beam.runners.worker.sdk_worker_main",
    "torch.utils.tensorboard",
    "deepspeed",
    "sentence_transformers",
    "transformers",
    "pyarrow.dataset",
    "scipy.stats",
    "sklearn",
    "soundfile",
)
LIMIT_S = 900
"""Time after which a command line is ended."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some packages print as they are imported
    gc.disable()  # until everything is imported
    for name in PACKAGES:
        with contextlib.suppress(ImportError):  # a command that needs the package says so
            importlib.import_module(name)
    gc.enable()
    gc.freeze()  # so that the garbage collector of a forked process does not scan the imported objects
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            os._exit(_child(**request))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)


def _child(argv: list[str], folder: str, stdout: str, stderr: str) -> int:
    """Run a command line as a new interpreter would; return its exit code."""
    os.setsid()
    signal.alarm(LIMIT_S)  # by default, its signal ends the process
    for number, path, flags in ((0, os.devnull, 0), (1, stdout, os.O_APPEND), (2, stderr, os.O_APPEND)):
        os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_CREAT | os.O_WRONLY | flags), number)
    os.chdir(folder)
    sys.stdin = open(0, closefd=False)
    try:
        _run(argv)
        return 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _run(argv: list[str]) -> None:
    sys.path.insert(0, str(Path.cwd()))
    if argv[0] == "deepspeed":
        os.execvp("deepspeed", argv)
    elif argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__"})
    elif argv[0].endswith(".py"):
        path = Path(argv[0]) if Path(argv[0]).exists() else Path(os.environ["PYTHONPATH"], argv[0])
        sys.argv = [str(path), *argv[1:]]
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        sys.argv = ["clearspan", *argv]
        runpy.run_module("clearspan", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
