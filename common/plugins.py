"""Plug-ins: a spec, `module:name`, names an attribute of a Python module that the user provides.

    "birds:Songs" -> import birds (an installed package, or birds.py in the working folder) -> Songs -> its contract

    load_class(spec, Base, "an objective")       a concrete subclass of Base
    load_object(spec, Contract, "a task")        an object that has what the class or Protocol Contract declares
    load_function(spec, "a function of ...")     anything that can be called
    call(spec, function, "without arguments")    the object that a loaded function or class returns
    resolve(spec)                                the object itself, unchecked

Loading runs the module's code. Pass only specs that the user gave (an option, a recipe, `CLEARSPAN_EXTENSIONS`) or that
an installed package declares, never text from a dataset or a model folder. Every failure is a `PluginError`, a
`ValueError` of one line, which starts with the spec and names what is missing from the contract.
"""

import inspect
import os
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from clearspan.common.parsing import did_you_mean
from clearspan.common.terminal import MAX_SAID, one_line
from clearspan.common.working_folder import own_modules

VARIABLE = "CLEARSPAN_EXTENSIONS"
"""Environment variable: modules, separated by commas, that register parts when they are imported."""
ENTRY_POINTS = "clearspan.extensions"
"""Entry point group in which an installed package names such modules."""

T = TypeVar("T")


class PluginError(ValueError):
    """A plug-in cannot be used. The message names its spec (`module:name`) and the cause."""


def is_spec(text: str) -> bool:
    """Return whether a text has the form `module:name`, with dots allowed on both sides."""
    module, _, name = text.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), *name.split(".")])


def resolve(spec: str) -> Any:
    """Import the module that a spec names, and return the attribute that it names.

    Args:
        spec: `module:name`, as the user wrote it.

    Raises:
        PluginError: the spec does not have the form `module:name`, or there is no such module or attribute.
    """
    if not is_spec(spec):
        raise PluginError(f"{spec}: not of the form module:name")
    module, _, path = spec.partition(":")
    value: Any = _import(module, spec)
    for name in path.split("."):
        if not hasattr(value, name):
            raise PluginError(f"{spec}: {_name(value)} has no {name!r}{did_you_mean(name, dir(value))}")
        value = getattr(value, name)
    return value


def load_class(spec: str, expected: Callable[..., T], noun: str) -> type[T]:
    """Return the class that a spec names; it must be a complete subclass of `expected`.

    Args:
        spec: `module:name`, as the user wrote it.
        expected: the base class, which declares what the class must have. (Its type is `Callable`, because mypy refuses
            an abstract class as `type[T]`.)
        noun: noun for error messages, with its article, e.g. "a kind of dataset".

    Raises:
        PluginError: the spec names no object (`resolve`); or the object is not a subclass of `expected`, lacks an
            abstract method, or lacks a class attribute that `expected` annotates as `ClassVar`.
    """
    value, contract, base = resolve(spec), cast(type, expected), _name(expected)
    if not inspect.isclass(value) or not issubclass(value, contract):
        raise PluginError(f"{spec}: {_described(value)}, not {noun} (a subclass of {base})")
    methods = sorted(getattr(value, "__abstractmethods__", ()))
    annotated = {name: hint for cls in contract.__mro__ for name, hint in inspect.get_annotations(cls).items()}
    attributes = [name for name, hint in annotated.items() if "ClassVar" in str(hint) and not hasattr(value, name)]
    _check_nothing_missing(spec, noun, base, [*methods, *attributes])
    return cast("type[T]", value)


def load_object(spec: str, expected: Callable[..., T], noun: str) -> T:
    """Return the object that a spec names: an instance, or a module or class with the expected attributes.

    Args:
        spec: `module:name`, as the user wrote it.
        expected: the class or Protocol whose public methods, properties and annotated attributes the object must have.
        noun: noun for error messages, with its article, e.g. "an evaluation task".

    Raises:
        PluginError: the spec names no object (`resolve`), or the object lacks one of these attributes.
    """
    return check_object(resolve(spec), spec, expected, noun)


def check_object(value: Any, spec: str, expected: Callable[..., T], noun: str) -> T:
    """Return `value`, an object that a plug-in has created, after checking that it has the expected attributes.

    Args:
        spec: the `module:name` of the function or class that created the object, for error messages.
        expected: the class or Protocol whose public methods, properties and annotated attributes the object must have.
        noun: noun for error messages, with its article, e.g. "an evaluation task".

    Raises:
        PluginError: the object lacks one of these attributes.
    """
    # The class is asked first, because `hasattr(value, name)` runs a property, which may need what is not there yet.
    has = (type(value), value)
    missing = [name for name in _members(expected) if not any(hasattr(each, name) for each in has)]
    _check_nothing_missing(spec, noun, _name(expected), missing)
    return cast(T, value)


def load_function(spec: str, noun: str) -> Callable[..., Any]:
    """Return the function, method or other callable that a spec names.

    Args:
        spec: `module:name`, as the user wrote it.
        noun: noun for error messages, with its article, e.g. "a function of a list of texts".

    Raises:
        PluginError: the spec names no object (`resolve`), or the object cannot be called.
    """
    value = resolve(spec)
    if not callable(value):
        raise PluginError(f"{spec}: {_described(value)}, not {noun}")
    return cast(Callable[..., Any], value)


def call(spec: str, function: Callable[[], T], circumstance: str, expected: tuple[type[Exception], ...] = ()) -> T:
    """Call a user's function or class, and return the result.

    Args:
        spec: the `module:name` of the function or class, for error messages.
        function: the function, with its arguments bound to it (`functools.partial`).
        circumstance: the end of the error message, after "when called", e.g. "without arguments" or "with the data
            folder".
        expected: types of exceptions that the function may raise, and that pass unchanged.

    Raises:
        PluginError: the function raises any other exception.
    """
    try:
        return function()
    except expected:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise PluginError(f"{spec}: raised {cause(error)} when called {circumstance}") from None


def cause(error: BaseException) -> str:
    """Return the type and the message of an exception that a user's code raised, in one line of bounded length."""
    return f"{type(error).__name__}: {one_line(error, MAX_SAID)}"


def load_extensions() -> None:
    """Import the modules that extend this package, e.g. by a kind of dataset.

    The environment variable `CLEARSPAN_EXTENSIONS` names them, and so do installed packages, as entry points in the
    group `clearspan.extensions`. A module registers its extensions when it is imported, e.g. with
    `shards.schema.register`. A module that is imported already is not imported again.

    Raises:
        PluginError: one of the modules cannot be imported.
    """
    for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        _import(name, f"{VARIABLE}: {name}")
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        _import(entry.module, f"entry point {entry.name} of {ENTRY_POINTS}")


def _import(module: str, spec: str) -> ModuleType:
    try:
        return own_modules.load(module)
    except (Exception, SystemExit) as error:  # raised by the module's own code, if there is one
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if f"{module}.".startswith(f"{absent}."):
            raise PluginError(f"{spec}: there is no module {absent}, installed or in {Path.cwd()}") from None
        raise PluginError(f"{spec}: the module {module} cannot be imported ({cause(error)})") from None


def _check_nothing_missing(spec: str, noun: str, base: str, names: list[str]) -> None:
    if names:
        raise PluginError(f"{spec}: not {noun}: it lacks {', '.join(dict.fromkeys(names))} (see {base})")


def _members(expected: Any) -> Iterator[str]:
    """Yield the names of the public methods, properties and annotated attributes of a class and of its base classes."""
    for base in expected.__mro__:
        yield from (name for name in [*inspect.get_annotations(base), *vars(base)] if not name.startswith("_"))


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if name else getattr(value, "__name__", type(value).__name__)


def _described(value: Any) -> str:
    return f"the class {_name(value)}" if inspect.isclass(value) else f"an object of type {type(value).__name__}"
