"""Main program of the Flex template: turn its parameters into the words of the command `clearspan`.

Dataflow's launcher passes each parameter as one word, --NAME=VALUE, and adds options of its own, such as
--template_location, with which the job is only described: the launcher submits it.
"""

import shlex
import sys
from collections.abc import Sequence

KIND, INPUT, MORE = "--kind=", "--input=", "--options="


def words(arguments: Sequence[str]) -> list[str]:
    """Return the command's words: the kind (default documents), each input by itself, and those of `options` last."""

    def values(name: str) -> list[str]:
        given = [argument.removeprefix(name) for argument in arguments if argument.startswith(name)]
        return [word for value in given for word in shlex.split(value)]

    others = [argument for argument in arguments if not argument.startswith((KIND, INPUT, MORE))]
    return [*(values(KIND) or ["documents"]), *(f"{INPUT}{value}" for value in values(INPUT)), *others, *values(MORE)]


if __name__ == "__main__":
    from clearspan.pipelines.__main__ import main

    raise SystemExit(main(words(sys.argv[1:])))
