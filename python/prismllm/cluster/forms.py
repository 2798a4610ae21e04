"""What a value in a cluster file may be: each form reads a value, or raises the error that says what is accepted, and
describes itself as JSON Schema. A schema with a title is one that several keys may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from prismllm.cluster.errors import Place, among, shown
from prismllm.cluster.quantities import Quantity


class Form:
    accepted: str

    def read(self, value: object, place: Place) -> object:
        raise NotImplementedError

    def schema(self) -> dict:
        raise NotImplementedError


@dataclass(frozen=True)
class Name(Form):
    """Text for people and for names of vertices."""

    strict: bool = False  # a word
    pattern = property(lambda self: "[A-Za-z0-9_-]{1,200}" if self.strict else "[^\\x00-\\x1f]{1,200}")
    accepted = property(lambda self: "1 to 200 " + ("letters, digits, - and _" if self.strict else "characters"))

    def read(self, value: object, place: Place) -> str:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise place.wrong(value, self.accepted)
        return value

    def schema(self) -> dict:
        return {"type": "string", "pattern": f"^{self.pattern}$"}


@dataclass(frozen=True)
class Ranges(Form):
    """Pairs of first and last."""

    pattern = "[0-9]{1,9}(-[0-9]{1,9})?(, ?[0-9]{1,9}(-[0-9]{1,9})?)*"
    accepted = 'numbers and ranges such as "0-7,16-23"'

    def read(self, value: object, place: Place) -> list[tuple[int, int]]:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise place.wrong(value, self.accepted)
        ends = (part.partition("-") for part in value.split(","))
        ranges = [(int(first), int(last or first)) for first, _, last in ends]
        for first, last in ranges:
            if first > last:
                raise place.wrong(value, f"ranges that rise; {first}-{last} does not")
        return ranges

    def schema(self) -> dict:
        return {"type": "string", "pattern": f"^{self.pattern}$"}


@dataclass(frozen=True)
class Whole(Form):
    least: int
    most: int
    accepted = property(lambda self: f"a whole number from {self.least} to {self.most}")

    def read(self, value: object, place: Place) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            raise place.wrong(value, self.accepted)
        return value

    def schema(self) -> dict:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True)
class Number(Form):
    """More than `above`, at most `most`."""

    above: float
    most: float
    accepted = property(lambda self: f"a number above {self.above:g}, at most {self.most:g}")

    def read(self, value: object, place: Place) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not self.above < value <= self.most:
            raise place.wrong(value, self.accepted)
        return float(value)

    def schema(self) -> dict:
        return {"type": "number", "exclusiveMinimum": self.above, "maximum": self.most}


@dataclass(frozen=True)
class Amount(Form):
    quantity: Quantity
    accepted = property(lambda self: self.quantity.accepted)

    def read(self, value: object, place: Place) -> Decimal:
        amount = self.quantity.read(value)
        if amount is None:
            raise place.wrong(value, self.accepted)
        return amount

    def schema(self) -> dict:
        least, most = (float(limit / self.quantity.base) for limit in (self.quantity.least, self.quantity.most))
        text = {"type": "string", "pattern": f"^{self.quantity.pattern.pattern}$"}
        number = {"type": "number", "minimum": least, "maximum": most}
        return {"title": self.quantity.name, "anyOf": [text, number]}


@dataclass(frozen=True)
class Choice(Form):
    known: tuple[str, ...]
    accepted = property(lambda self: ", ".join(self.known))

    def read(self, value: object, place: Place) -> str:
        if value not in self.known:
            raise place.wrong(value, self.accepted)
        return value

    def schema(self) -> dict:
        return {"enum": list(self.known)}


@dataclass(frozen=True)
class Known(Form):
    """A name of the library: one of many, so that an error says the nearest first."""

    title: str
    known: tuple[str, ...]
    accepted = property(lambda self: ", ".join(sorted(self.known)))

    def read(self, value: object, place: Place) -> str:
        if value not in self.known:
            said = among(value, self.known) if isinstance(value, str) else f"accepted: {self.accepted}"
            raise place.error(f"{place} = {shown(value)}; {said}")
        return value

    def schema(self) -> dict:
        return {"title": self.title, "enum": sorted(self.known)}


@dataclass(frozen=True)
class Many(Form):
    """A list, not empty; of tables it is what [[name]] makes."""

    of: Form

    @property
    def accepted(self) -> str:
        tables = self.of.accepted == "a table"
        return "tables in double brackets" if tables else f"a list of at least one of: {self.of.accepted}"

    def read(self, value: object, place: Place) -> list:
        if not isinstance(value, list) or not value:
            raise place.wrong(value, self.accepted)
        return [self.of.read(one, place / index) for index, one in enumerate(value)]

    def schema(self) -> dict:
        return {"type": "array", "minItems": 1, "items": self.of.schema()}


@dataclass(frozen=True)
class Either(Form):
    """The first form for values of one type, the second for all others."""

    type: type
    first: Form
    second: Form
    accepted = property(lambda self: f"{self.first.accepted}, or {self.second.accepted}")

    def read(self, value: object, place: Place) -> object:
        return (self.first if isinstance(value, self.type) else self.second).read(value, place)

    def schema(self) -> dict:
        return {"anyOf": [self.first.schema(), self.second.schema()]}
