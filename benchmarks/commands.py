"""Run commands of Clearspan, each in a process of its own, as benchmarks and studies need them."""

import importlib.util
from collections.abc import Sequence

from clearspan.common.spawned import call


def run_module(module: str, argv: Sequence[str], quiet: bool = False) -> None:
    """Run `python -m MODULE ARGV` to its end, and print its output, or nothing if `quiet` is true.

    Raises:
        UsageError: the command cannot work with these options.
        CommandError: the command failed.
        KeyboardInterrupt: the user interrupted this process; the command was interrupted, too, and saved its work.
    """
    spec = importlib.util.find_spec(module)
    is_package = spec is not None and spec.submodule_search_locations is not None
    call(f"{module}{'.__main__' if is_package else ''}:main", list(argv), quiet=quiet)
