"""Words of a command line that set the same options as a dataclass, or as keyword arguments: the parser's inverse.

`adapt` prints its steps as commands that a user can run, and `train` passes its options on to the launcher.
"""

from collections.abc import Collection, Mapping
from typing import Any

from clearspan.cli.flags import flag_of
from clearspan.common.options import Options, fields_of, is_one, keyword_fields, unknown_option


def words(cls: type[Options], arguments: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that set the same options as keyword arguments, in the arguments' order.

        {"min_tokens": 512, "dedup": True, "exclude": ["a.txt"]}  ->  --min-tokens=512 --dedup --exclude=a.txt

    Values are not checked.

    Args:
        arguments: name of a keyword argument -> its value; an option with the value None is left out.

    Raises:
        UsageError: an option is unknown.
    """
    known, line = keyword_fields(cls), []
    for name, value in arguments.items():
        if name not in known:
            raise unknown_option(name, known)
        field = known[name]
        if value is None:
            continue
        flag = flag_of(field)
        if field.type is bool:
            is_on = bool(value) != field.turned_off_by(name)
            if is_on != field.default or field.flag.negatable:
                line.append(flag if is_on or field.is_negated else f"--no-{flag.removeprefix('--')}")
            continue
        if value is True and field.flag.const is not None:
            line.append(flag)
            continue
        is_bare = field.flag.positional or field.flag.rest
        several = [value] if is_one(value) else value
        line += [str(each) if is_bare else f"{flag}={each}" for each in several]
    return line


def words_of(options: Options, left_out: Collection[str] = ()) -> list[str]:
    """Return the words of a command line that set these options, in the order of the fields.

    The options of parts (fields that are dataclasses of options themselves) are not written.

    Args:
        left_out: the names of further fields that are not written.
    """
    given = {}
    for field in fields_of(type(options)):
        if field.name not in left_out:
            value = getattr(options, field.name)
            given[field.keyword] = not value if field.is_negated else value
    return words(type(options), given)
