"""The error that ends a command's work with one line for the user, and the check for optional packages."""

import importlib.util


class PipelineError(Exception):
    """The run cannot continue. The message says what is wrong, where, and what to do."""


def check_extra(extra: str, *packages: str, feature: str) -> None:
    """Raise PipelineError if a package that a feature needs is not installed.

    Args:
        extra: the extra of Clearspan that installs the packages, as in `pip install -e '.[EXTRA]'`.
        packages: the names by which the packages are imported.
        feature: the feature, for the message.
    """
    if missing := [package for package in packages if importlib.util.find_spec(package) is None]:
        raise PipelineError(
            f"{feature} needs {', '.join(missing)}: in a clone, pip install -c constraints.txt -e '.[{extra}]'"
        )
