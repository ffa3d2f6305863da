"""A page as a test reads it."""

import json
from html.parser import HTMLParser
from typing import Any

Attributes = dict[str, str | None]


class Reader(HTMLParser):
    """Elements with their attributes, tables with their cells, scripts, data, and all other text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Attributes]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.code: list[str] = []
        self.data: dict[str, Any] = {}
        self.text = ""
        self._open: list[tuple[str, Attributes]] = []
        self.feed(text)
        self.close()
        self.ids = [str(told["id"]) for _, told in self.tags if "id" in told]
        self.sections = [str(told["id"]) for tag, told in self.tags if tag == "section"]
        self.charts = {
            str(told["data-chart"]): told for _, told in self.tags if "data-chart" in told
        }

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        self._open.append((tag, found))
        if tag == "table":
            self.tables[str(found.get("id"))] = []
        elif tag == "tr":
            self._rows().append([])
        elif tag in ("th", "td"):
            self._rows()[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.data[str(attributes["id"])] = json.loads(data)
        elif tag == "script":
            self.code.append(data)
        else:
            self.text += data
            if tag in ("th", "td"):
                self._rows()[-1][-1] += data

    def _rows(self) -> list[list[str]]:
        return list(self.tables.values())[-1]

    def named(self, *attributes: str) -> list[str]:
        """What these attributes name, such as `aria-labelledby`."""
        told = (str(found.get(one) or "") for _, found in self.tags for one in attributes)
        return " ".join(told).split()
