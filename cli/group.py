"""Groups of commands: the first word of a command line names the command, as `ls` in `clearspan shards ls DIR`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from clearspan.cli.command import Command, epilog
from clearspan.cli.parser import Parser, add_fields
from clearspan.cli.run import Work, run
from clearspan.common.plugins import PluginError


@dataclass(frozen=True)
class Group:
    """A group of commands. The first word of a command line names the one to run: `ls` in `clearspan shards ls DIR`.

    Attributes:
        commands: the commands by name.
        prog: the words that call the group, such as `python -m clearspan.shards`, with which its usage line begins.
        description: the text above the list of commands in the help.
        examples: command lines for the help. An element may hold several lines; an indented line continues the line
            above it.
        notes: the text below the examples.
        load: function that imports a user's own command, which the first word names as `module:name`, and returns it;
            it raises `PluginError` if it cannot. None if the group runs only `commands`.
    """

    commands: Mapping[str, type[Command]]
    prog: str
    description: str
    examples: Sequence[str] = ()
    notes: str = ""
    load: Callable[[str], type[Command]] | None = None

    def main(self, argv: Sequence[str] | None = None, prog: str = "") -> int:
        """Run the command that a command line names; return its exit code.

        Args:
            argv: the words of the command line, the command's name first; None for the arguments of this process.
            prog: the words with which the group is called; "" stands for the group's attribute `prog`.
        """
        return run(self.work(argv, prog))

    def work(self, argv: Sequence[str] | None = None, prog: str = "") -> Work:
        """Return the work of a command line: find the command, whose own work comes next."""
        words = list(sys.argv[1:] if argv is None else argv)
        prog = prog or self.prog
        return Work(prog, lambda: self._named(words, prog).work(words[1:], f"{prog} {words[0]}"), (OSError,))

    def parsed(self, words: Sequence[str]) -> Command:
        """Parse a command line, the command's name first; return the command with its options."""
        return self._named(words, self.prog).parsed(words[1:], f"{self.prog} {words[0]}")

    def parser(self, prog: str) -> Parser:
        """Return a parser with a subparser for each command. It prints the group's help and reports a wrong first word.

        Args:
            prog: the words with which the group is called.
        """
        root = Parser(prog=prog, description=self.description, epilog=epilog(self.examples, self.notes))
        below = root.add_subparsers(dest="command", required=True)
        for name, cls in self.commands.items():
            parser = below.add_parser(name, help=cls.summary.replace("%", "%%"), **cls.help_texts(f"{prog} {name}"))
            add_fields(parser, cls)
            parser.set_defaults(parser=parser)
        return root

    def _named(self, words: Sequence[str], prog: str) -> type[Command]:
        """Return the command that the first word names; if it names none, print the help or an error, and exit."""
        if words and words[0] in self.commands:
            return self.commands[words[0]]
        if words and ":" in words[0] and self.load is not None:
            try:
                return self.load(words[0])
            except PluginError as error:
                self.parser(prog).error(str(error))
        # Help, or an error in the first word, ends here; if it goes on, an option stands before the command's name.
        given, rest = self.parser(prog).parse_known_args(words)
        parser: Parser = given.parser
        parser.error(parser.unknown(rest or words))
