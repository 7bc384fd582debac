"""Name of the content of a file that is not the expected image or clip, so that the reason names the mistake."""

from clearspan.pipelines.readers.sniff import compression_of, is_tar
from clearspan.pipelines.readers.streams import BOM

HEAD_BYTES = 4096
_PAGES = (b"<!doctype html", b"<html", b"<head", b"<body")
_CONTAINERS = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"%PDF": "a PDF",
    b"\xff\xd8\xff": "a JPEG",
    b"\x89PNG": "a PNG",
    b"RIFF": "a RIFF file",
    b"fLaC": "a FLAC",
    b"OggS": "an Ogg",
    b"ID3": "an MP3",
}


def name_of_content(data: bytes) -> str:
    """Return a name for a file's content: "no bytes", "an SVG", "an HTML page", "a tar", ... or "an unknown format"."""
    if not data:
        return "no bytes"
    head = data[:HEAD_BYTES]
    text = head.removeprefix(BOM).lstrip().lower()
    if text.startswith(b"<svg") or (text.startswith((b"<?xml", b"<!--", b"<!doctype svg")) and b"<svg" in text):
        return "an SVG"
    if text.startswith(_PAGES):
        return "an HTML page"
    if is_tar(head):
        return "a tar"
    if compression := compression_of(head):
        return f"a {compression} file"
    for magic, name in _CONTAINERS.items():
        if head.startswith(magic):
            return name
    if not any(head):
        return "zeros"
    # The head may end within a character.
    is_text = b"\0" not in head and len(head.decode("utf-8", "ignore").encode()) > len(head) - 4
    return "a text" if is_text else "an unknown format"
