"""Mail archives as an input format: mbox files, with a record a message. Read them with

    clearspan documents --format mbox:Mbox --input mail.mbox --text-field text ...
    clearspan pairs --format mbox:Mbox --input mail.mbox --fields subject,text ...

in the folder of this file. A message begins with a line "From "; so do no others, which writers quote as ">From ".
"""

import email
import email.policy
from pathlib import Path

from clearspan.pipelines.readers.formats import Format
from clearspan.pipelines.records import HEAD_BYTES, Record


class Mbox(Format):
    """Mail archives. Only `recognizes` and `read` are necessary; all else has a default."""

    has_fields = True

    def recognizes(self, head, path):
        return head.startswith(b"From ") and b"\nFrom:" in head

    def read(self, stream, split, reading):
        if split.start:
            stream.seek(split.start)
        start, lines = split.start, []
        while line := stream.readline():
            if line.startswith(b"From ") and lines:
                yield message(split.input.name, start, b"".join(lines), reading.max_bytes)
                start, lines = start + sum(map(len, lines)), []
                if split.end is not None and start >= split.end:
                    return
            lines.append(line)
        if lines:
            yield message(split.input.name, start, b"".join(lines), reading.max_bytes)

    def cut(self, path, num_bytes, unit_bytes, whole):
        """Cut a large archive on this machine between two messages, so that several processes read it."""
        if whole or num_bytes <= unit_bytes or "://" in path:
            return [(0, None)]
        starts, offset = [0], 0
        with Path(path).open("rb") as file:
            for line in file:
                if line.startswith(b"From ") and offset - starts[-1] >= unit_bytes:
                    starts.append(offset)
                offset += len(line)
        return list(zip(starts, [*starts[1:], None], strict=True))


def message(name, offset, data, max_bytes):
    """Return the record of a message: its subject and its text."""
    if len(data) > max_bytes:
        return Record(name, offset, None, data[:HEAD_BYTES], f"longer than {max_bytes:,} bytes: {len(data):,}")
    content = data.partition(b"\n")[2].replace(b"\n>From ", b"\nFrom ")
    mail = email.message_from_bytes(content, policy=email.policy.default)
    body = mail.get_body(("plain",))
    if body is None:
        return Record(name, offset, None, data[:HEAD_BYTES], "a message without plain text")
    try:
        text = body.get_content()
    except LookupError as error:  # a charset that Python does not know
        return Record(name, offset, None, data[:HEAD_BYTES], str(error))
    return Record(name, offset, {"subject": mail["subject"] or "", "text": text}, data[:HEAD_BYTES])
