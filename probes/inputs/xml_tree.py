"""XML from untrusted files, read into immutable elements, with limits.

Document types, entities, files beyond 64 MiB, nesting beyond 64 levels, and more elements or
attributes than any machine needs are refused while they are read: no topology needs them, and each
is a known way to exhaust a reader's memory or stack. A document type that only names its
definition, as in hwloc's files, can be permitted; nothing is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from tuccl.errors import MachineError

MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 64
MAX_ELEMENTS = 500_000
"""Elements of a document; hwloc writes some 4,000 for the largest hosts."""
MAX_ATTRIBUTES = 64
"""Attributes of one element; files of NCCL, RCCL and hwloc have up to 13."""
_PIECE = 1024 * 1024
"""Longest tag in bytes: expat reads a tag as a whole, before its attributes can be counted."""


@dataclass(frozen=True, slots=True)
class XmlElement:
    """An element with its attributes and children, and its text where `read_xml` keeps it."""

    tag: str
    line: int
    attributes: dict[str, str]
    children: list[XmlElement] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    """Its text, in the pieces that expat read."""

    def children_of(self, tag: str) -> list[XmlElement]:
        """Children with this tag, in document order."""
        return [child for child in self.children if child.tag == tag]


def read_xml(
    text: str, source: str, doctype: str = "", text_of: frozenset[str] = frozenset()
) -> XmlElement:
    """Read a document and return its root; `source` is its name in errors, usually the path.

    `doctype` is the only document type that is permitted, if it has no internal declarations. Text
    is kept of elements with a tag in `text_of` only.

    Raises:
        MachineError: not well formed, or beyond the limits above.
    """
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > MAX_BYTES:
        raise MachineError(
            f"{source}: {len(content):,} bytes of XML, at most {MAX_BYTES:,} are read"
        )
    collector = _Collector(source, doctype, text_of)
    if any(b"<" not in content[at : at + _PIECE] for at in range(0, len(content) - _PIECE, _PIECE)):
        raise MachineError(
            f"{source}: a tag or text of more than {_PIECE:,} bytes; give the file as it was "
            "written"
        )
    try:
        collector.parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise MachineError(f"{source}:{error.lineno}: not well-formed XML: {reason}") from error
    return collector.roots[0]


class _Collector:
    """Expat's callbacks; builds the tree below `roots`."""

    def __init__(self, source: str, doctype: str, text_of: frozenset[str]) -> None:
        self.source = source
        self.known_doctype = doctype
        self.text_of = text_of
        self.roots: list[XmlElement] = []
        self.open: list[XmlElement] = []
        self.elements = 0
        # The text is already decoded, so an encoding that the document declares no longer holds.
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.StartDoctypeDeclHandler = self.doctype
        if text_of:
            self.parser.CharacterDataHandler = self.characters

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        element = XmlElement(tag, self.parser.CurrentLineNumber, attributes)
        where = f"{self.source}:{element.line}"
        self.elements += 1
        if self.elements > MAX_ELEMENTS:
            raise MachineError(
                f"{where}: more than {MAX_ELEMENTS:,} elements, which no machine's file has; give "
                "the file as it was written"
            )
        if len(self.open) >= MAX_DEPTH:
            raise MachineError(f"{where}: elements nested deeper than {MAX_DEPTH} levels")
        if len(attributes) > MAX_ATTRIBUTES:
            raise MachineError(
                f"{where}: <{tag[:40]}> with {len(attributes):,} attributes, at most "
                f"{MAX_ATTRIBUTES} are read"
            )
        (self.open[-1].children if self.open else self.roots).append(element)
        self.open.append(element)

    def end(self, tag: str) -> None:  # noqa: ARG002 - expat checks that tags match
        self.open.pop()

    def characters(self, text: str) -> None:
        if self.open and self.open[-1].tag in self.text_of:
            self.open[-1].pieces.append(text)

    def doctype(
        self, name: str, _system: str | None, _public: str | None, has_declarations: bool
    ) -> None:
        if name == self.known_doctype and not has_declarations:
            return
        raise MachineError(
            f"{self.source}:{self.parser.CurrentLineNumber}: a document type (<!DOCTYPE>) is not "
            "accepted; remove it"
        )
