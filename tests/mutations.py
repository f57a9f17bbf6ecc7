"""Damaged documents for tests: a valid one with a few things changed, moved or taken away."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([10**400, -(10**20), 1e-320, "\x1b[31m", "\ud800", "[red]"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a document with every key in it."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], (dict, list)):
            found += places(value[key])
    return found


def mutate(data: st.DataObject, text: str) -> str:
    """A valid document with one to three things changed, moved or taken away."""
    document = json.loads(text)
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(places(document)))
        action = data.draw(st.sampled_from(["replace", "delete", "rename"]))
        if action == "replace":
            container[key] = data.draw(JSON)
        elif action == "delete":
            del container[key]
        elif isinstance(container, dict):
            container[data.draw(st.text(max_size=8))] = container.pop(key)
    return json.dumps(document)
