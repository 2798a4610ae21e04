"""Tables in a cluster file: which keys they may have, and how errors name those that they may not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prismllm.cluster.errors import Place
from prismllm.cluster.forms import Choice, Form


@dataclass(frozen=True)
class Key:
    """Of a table. `text` says what it is; `default` is what stands where the file has nothing, or None, and then
    `otherwise` says what holds."""

    form: Form
    text: str
    default: object = None
    required: bool = False
    otherwise: str = ""

    @property
    def description(self) -> str:
        return f"{self.text}; if not given: {self.otherwise}" if self.otherwise else self.text


class Values(dict):
    """A table as read: every key of its form, and where it stands."""

    def __init__(self, place: Place):
        super().__init__()
        self.place = place


@dataclass(frozen=True)
class Table(Form):
    keys: Mapping[str, Key]
    of: str = ""  # for errors: whose keys these are
    title: str = ""  # in the schema
    accepted = "a table"

    def read(self, value: object, place: Place) -> Values:
        if not isinstance(value, dict):
            raise place.wrong(value, self.accepted)
        for name in value:
            if name not in self.keys:
                raise (place / name).unknown(self.keys, self.of)
        values = Values(place)
        for name, key in self.keys.items():
            if name in value:
                values[name] = key.form.read(value[name], place / name)
            elif key.required:
                raise (place / name).missing(key.form.accepted)
            else:
                values[name] = key.default
        return values

    def schema(self) -> dict:
        properties = {name: {"description": key.description} | key.form.schema() for name, key in self.keys.items()}
        for name, key in self.keys.items():
            if key.default is not None:
                properties[name]["default"] = key.default
        required = [name for name, key in self.keys.items() if key.required]
        found = {"type": "object", "properties": properties, "additionalProperties": False}
        return ({"title": self.title} if self.title else {}) | found | ({"required": required} if required else {})


@dataclass(frozen=True)
class ByKind(Form):
    """A table whose other keys depend on its `kind`."""

    title: str
    kinds: Mapping[str, Mapping[str, Key]]
    text: str
    accepted = "a table with a kind"

    def _table(self, kind: str) -> Table:
        key = Key(Choice((kind,)), self.text, required=True)
        return Table({"kind": key} | dict(self.kinds[kind]), f' of kind "{kind}"')

    def read(self, value: object, place: Place) -> Values:
        if not isinstance(value, dict):
            raise place.wrong(value, self.accepted)
        choice = Choice(tuple(self.kinds))
        if "kind" not in value:
            raise (place / "kind").missing(choice.accepted)
        return self._table(choice.read(value["kind"], place / "kind")).read(value, place)

    def schema(self) -> dict:
        return {"title": self.title, "oneOf": [self._table(kind).schema() for kind in self.kinds]}
