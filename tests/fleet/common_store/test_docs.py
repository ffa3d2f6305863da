"""docs/common-store.md has the tables as they are; WIRESPEED_RENEW_GOLDEN=1 writes them anew."""

import os
from pathlib import Path

from sqlalchemy.dialects.postgresql import dialect

from wirespeed.fleet.common_store.tables import METADATA, SCHEMA

PAGE = Path(__file__).parents[3] / "docs" / "common-store.md"
MARK = "<!-- tables: written by tests/fleet/common_store/test_docs.py -->\n"


def written() -> str:
    lines = []
    for table in METADATA.sorted_tables:
        lines += ["", f"### {SCHEMA}.{table.name}", "", "| column | type | what |", "|---|---|---|"]
        for column in table.columns:
            kind = column.type.compile(dialect()).partition(" COLLATE")[0].lower()
            key = ", key" if column.primary_key else ""
            null = ", or null" if column.nullable else ""
            lines.append(f"| `{column.name}` | {kind}{null}{key} | {column.comment or ''} |")
    return "\n".join(lines) + "\n"


def test_the_page_has_every_table() -> None:
    before, mark, told = PAGE.read_text("utf-8").partition(MARK)
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        PAGE.write_text(before + mark + written(), "utf-8")
        return
    assert told == written(), (
        "renew it: WIRESPEED_RENEW_GOLDEN=1 pytest tests/fleet/common_store/test_docs.py"
    )
