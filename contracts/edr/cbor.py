"""Deterministic CBOR (RFC 8949, section 4.2.1), the small part that evidence needs: one value, one byte string.

Integers of 64 bits, bytes, text, arrays, maps with text keys, true, false and null. No floats (physical values are
integers in units of their resolution), no tags, no indefinite lengths. The decoder refuses every other spelling of
the same value, so equal records have equal hashes whoever wrote them.

>>> encode({"b": 1, "a": [-1, None]}).hex()
'a261618220f6616201'
>>> decode(bytes.fromhex('a261618220f6616201'))
{'a': [-1, None], 'b': 1}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from contracts.edr.errors import MalformedEvidence

Value: TypeAlias = "int | bytes | str | bool | None | Sequence[Value] | Mapping[str, Value]"

MAX_DEPTH: Final = 16
"""A record nests four deep; the limit keeps forged input from exhausting the stack."""

_UINT, _NEGINT, _BYTES, _TEXT, _ARRAY, _MAP, _SIMPLE = 0, 1, 2, 3, 4, 5, 7
_FALSE, _TRUE, _NULL = 0xF4, 0xF5, 0xF6
_U64_LIMIT: Final = 1 << 64
_WIDTHS: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_SMALLEST: Final = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}


def encode(value: Value) -> bytes:
    """The only byte string that stands for ``value``. Raises TypeError or ValueError on what CBOR here cannot hold."""
    out = bytearray()
    _encode(value, out, 0)
    return bytes(out)


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    for info, width in _WIDTHS.items():
        if argument < 1 << (8 * width):
            return bytes([major << 5 | info]) + argument.to_bytes(width, "big")
    raise ValueError("integer beyond 64 bits")


def _encode(value: Value, out: bytearray, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if value is None:
        out.append(_NULL)
    elif isinstance(value, bool):
        out.append(_TRUE if value else _FALSE)
    elif isinstance(value, int):
        out += _head(_UINT, value) if value >= 0 else _head(_NEGINT, -1 - value)
    elif isinstance(value, bytes):
        out += _head(_BYTES, len(value)) + value
    elif isinstance(value, str):
        text = value.encode()
        out += _head(_TEXT, len(text)) + text
    elif isinstance(value, Mapping):
        _encode_map(value, out, depth)
    elif isinstance(value, Sequence):
        out += _head(_ARRAY, len(value))
        for item in value:
            _encode(item, out, depth + 1)
    else:
        raise TypeError(f"{type(value).__name__} has no place in evidence")


def _encode_map(value: Mapping[str, Value], out: bytearray, depth: int) -> None:
    if not all(isinstance(key, str) for key in value):
        raise TypeError("map keys are text")
    out += _head(_MAP, len(value))
    for key_bytes, key in sorted((encode(key), key) for key in value):
        out += key_bytes
        _encode(value[key], out, depth + 1)


def decode(data: bytes) -> Value:
    """The value of exactly these bytes. Raises MalformedEvidence with the offset of the first fault."""
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise MalformedEvidence("bytes after the end of the value", reader.at)
    return value


class _Reader:
    """One pass over the bytes; every length is checked against what is left before anything is built."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise MalformedEvidence("nested too deeply", self.at)
        start = self.at
        first = self._take(1)[0]
        if first in (_FALSE, _TRUE, _NULL):
            return None if first == _NULL else first == _TRUE
        major, argument = first >> 5, self._argument(first & 31, start)
        if major == _UINT:
            return argument
        if major == _NEGINT:
            return -1 - argument
        if major == _BYTES:
            return self._take(argument)
        if major == _TEXT:
            return self._text(argument)
        if major == _ARRAY:
            self._room(argument)
            return [self.value(depth + 1) for _ in range(argument)]
        if major == _MAP:
            return self._map(argument, depth)
        raise MalformedEvidence(f"type byte 0x{first:02x} is not allowed", start)

    def _argument(self, info: int, start: int) -> int:
        if info < 24:
            return info
        width = _WIDTHS.get(info)
        if width is None:
            raise MalformedEvidence("indefinite or reserved length", start)
        argument = int.from_bytes(self._take(width), "big")
        if argument < _SMALLEST[info]:
            raise MalformedEvidence("not the shortest spelling", start)
        return argument

    def _take(self, count: int) -> bytes:
        self._room(count)
        taken = self._data[self.at : self.at + count]
        self.at += count
        return taken

    def _room(self, count: int) -> None:
        if count > len(self._data) - self.at:
            raise MalformedEvidence("ends too early", self.at)

    def _text(self, length: int) -> str:
        start = self.at
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError as bad:
            raise MalformedEvidence("text is not UTF-8", start + bad.start) from bad

    def _map(self, count: int, depth: int) -> dict[str, Value]:
        self._room(2 * count)
        result: dict[str, Value] = {}
        previous = b""
        for _ in range(count):
            start = self.at
            key = self.value(depth + 1)
            spelling = self._data[start : self.at]
            if not isinstance(key, str):
                raise MalformedEvidence("map key is not text", start)
            if spelling <= previous:
                raise MalformedEvidence("map keys repeated or out of order", start)
            previous = spelling
            result[key] = self.value(depth + 1)
        return result
