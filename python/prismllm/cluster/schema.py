"""The JSON Schema of cluster files, for editors. `python -m prismllm.cluster.schema` prints it; cluster.schema.json is
its output, and a test keeps it so."""

from __future__ import annotations

import json

from prismllm.cluster.keys import file_form

_BESIDE = ("description", "default")  # of the key that has the form, not of the form


def schema() -> dict:
    """What keys.py says. What keys must agree on between them (as a fabric where nodes are several) it cannot say, but
    for the choice of nodes or sites."""
    shared: dict[str, dict] = {}
    made = _without_titled(file_form().schema(), shared)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A cluster of prismllm.cluster"}
    choice = {"oneOf": [{"required": ["node"]}, {"required": ["site"]}]}
    return head | made | choice | {"$defs": dict(sorted(shared.items()))}


def as_text() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _without_titled(part: object, shared: dict[str, dict]) -> object:
    """References in place of schemas with titles, which go to `shared`."""
    if isinstance(part, list):
        return [_without_titled(one, shared) for one in part]
    if not isinstance(part, dict):
        return part
    made = {name: _without_titled(one, shared) for name, one in part.items()}
    if not isinstance(made.get("title"), str):  # a key may be called title, too
        return made
    beside = {name: made.pop(name) for name in _BESIDE if name in made}
    title = made.pop("title")
    assert shared.setdefault(title, made) == made
    return beside | {"$ref": f"#/$defs/{title}"}


if __name__ == "__main__":
    print(as_text(), end="")
