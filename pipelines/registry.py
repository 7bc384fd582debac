"""The commands of `pipelines` by name: one for each kind of dataset; and vocabulary, mine, search and serve."""

import importlib
import inspect
import pkgutil

from clearspan.common import plugins
from clearspan.common.options import keywords
from clearspan.pipelines import builders
from clearspan.pipelines.builders import Builder
from clearspan.pipelines.command import PipelineCommand, StoreCommand
from clearspan.pipelines.dataset_command import MakeDataset, making
from clearspan.pipelines.mining.mine_command import Mine
from clearspan.pipelines.run import RunOptions
from clearspan.pipelines.search.search_command import Search
from clearspan.pipelines.serve.serve_command import Serve
from clearspan.pipelines.vocabulary_command import Vocabulary
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
OTHERS: dict[str, type[StoreCommand]] = {"vocabulary": Vocabulary, "mine": Mine, "search": Search, "serve": Serve}
"""The commands that make no dataset from a corpus."""
COMMANDS: dict[str, type[PipelineCommand]] = {**{name: making(builder) for name, builder in BUILDERS.items()}, **OTHERS}


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
