"""The blocks of code in the README and the guides."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- test: (\w+).*?-->\n```\w+\n(.*?)```", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(kind: str) -> list[str]:
    """Return the blocks that are tested in a way."""
    found = [block for page in PAGES for block in BLOCK.findall(page.read_text())]
    return [text for name, text in found if name == kind]
