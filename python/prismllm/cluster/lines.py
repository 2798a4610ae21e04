"""On which line of a TOML file each key stands; the parser of the standard library does not say.

The text is valid TOML already, so this only follows brackets, strings and dots. Paths are those of the parsed tables:
("node", 1, "nic", "bandwidth")."""

from __future__ import annotations

import re
from bisect import bisect_right

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}' r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[\w-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]+")


def lines_of(text: str) -> dict[tuple, int]:
    """Keys -> line, from 1."""
    return _Lines(text).found


class _Lines:
    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.starts = [match.start() for match in re.finditer(r"\n", text)]
        self.found: dict[tuple, int] = {}
        self.last: dict[tuple, int] = {}  # array of tables -> its last element
        table: tuple = ()
        self._skip(_BLANK)
        while self.at < len(text):
            if text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern) -> str:
        match = pattern.match(self.text, self.at)
        self.at = match.end()
        return match[0]

    def _note(self, path: tuple, at: int) -> None:
        self.found.setdefault(path, bisect_right(self.starts, at - 1) + 1)

    def _header(self) -> tuple:
        start = self.at
        many = self.text.startswith("[[", self.at)
        self.at += 1 + many
        *parents, name = self._key()
        self.at += 1 + many
        path: tuple = ()
        for key in parents:
            path = self._element((*path, key))
        path = (*path, name)
        if many:
            self.last[path] = self.last.get(path, -1) + 1
            self._note(path, start)
        path = self._element(path)
        self._note(path, start)
        return path

    def _element(self, path: tuple) -> tuple:
        return (*path, self.last[path]) if path in self.last else path

    def _key(self) -> list[str]:
        """Dotted; ends before what follows it."""
        parts = []
        while True:
            self._skip(_BLANK)
            quoted = self.text[self.at] in "\"'"
            part = self._skip(_STRING if quoted else _BARE_KEY)
            parts.append(tomllib.loads(f"key = {part}")["key"] if quoted else part)
            self._skip(_BLANK)
            if self.text[self.at] != ".":
                return parts
            self.at += 1

    def _pair(self, table: tuple) -> None:
        start = self.at
        keys = self._key()
        for length in range(1, len(keys) + 1):
            self._note((*table, *keys[:length]), start)
        self.at += 1  # =
        self._value((*table, *keys))

    def _value(self, path: tuple) -> None:
        self._skip(_BLANK)
        opening = self.text[self.at]
        if opening in "\"'":
            self._skip(_STRING)
        elif opening in "[{":
            self._items(path, "]" if opening == "[" else "}")
        else:
            self._skip(_BARE_VALUE)

    def _items(self, path: tuple, closing: str) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip(_BLANK)
            if self.text[self.at] == closing:
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
            elif closing == "]":
                self._note((*path, index), self.at)
                self._value((*path, index))
                index += 1
            else:
                self._pair(path)
