"""Command lines: the only package that knows flags and exit codes. It imports nothing of ours but `common`.

    words ─> main.py: the command ─> parser.py: its options ─> command.py: `run` ─> run.py: result, or an error

A command is a dataclass of options with the work that it does (`command.py`); commands with a common first word are a
group (`group.py`). `catalog.py` lists them all. `process.py` answers a call of `common.spawned`.
"""
