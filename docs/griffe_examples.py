"""For mkdocstrings: `Example:` in a docstring is a section of doctests, as `Examples:` is."""

from __future__ import annotations

from typing import Any

import griffe


class ExamplesSections(griffe.Extension):
    """Renames the heading before the docstring is parsed."""

    def on_instance(self, *, node: Any, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
