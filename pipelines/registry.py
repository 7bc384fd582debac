"""The kinds of dataset by the names of their commands, and the command of a kind of the user's own."""

import importlib
import inspect
import pkgutil

from clearspan.common import plugins
from clearspan.common.options import keywords
from clearspan.pipelines import builders
from clearspan.pipelines.builders import Builder
from clearspan.pipelines.dataset_command import MakeDataset, making
from clearspan.pipelines.run import RunOptions
from clearspan.shards import schema as schemas


def find_builders() -> dict[str, type[Builder]]:
    """Return the builders that the modules of `pipelines.builders` define: name of the command -> class."""
    names = [module.name for module in pkgutil.iter_modules(builders.__path__, f"{builders.__name__}.")]
    modules = map(importlib.import_module, names)
    classes = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    concrete = [cls for cls in classes if issubclass(cls, Builder) and not inspect.isabstract(cls)]
    named = {builder.command or builder.name: builder for builder in concrete}
    return dict(sorted(named.items()))


BUILDERS = find_builders()


def own_command(spec: str) -> type[MakeDataset]:
    """Return the command that makes datasets of the user's own builder.

    Args:
        spec: the class of the builder, as `module:name`.

    Raises:
        PluginError: there is no such class; it does not implement `Builder`; the columns of its datasets are not
            registered (`clearspan.shards.schema.register`); or one of its options has the name of an option that
            every kind has.
    """
    builder = plugins.load_class(spec, Builder, "a builder of datasets")
    if builder.name not in schemas.KINDS:
        raise plugins.PluginError(f"{spec}: {builder.name!r} has no columns: call clearspan.shards.schema.register")
    if twice := sorted(keywords(builder) & keywords(RunOptions)):
        raise plugins.PluginError(f"{spec}: every kind of dataset has an option {twice[0]!r}: give yours another name")
    return making(builder)
