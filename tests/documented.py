"""The blocks of code in the README and the guides."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- test: (\w+).*?-->\n```\w+\n(.*?)```", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


LINE = re.compile(r"^ {4}((?:tune-tf|make) .*)$", re.MULTILINE)


def shell_lines() -> list[list[str]]:
    """Return the lines for a shell that call this package or its Makefile, as words."""
    lines = [line for page in PAGES for line in LINE.findall(page.read_text())]
    return [shlex.split(re.sub(r" +>.*", "", line), comments=True) for line in lines]


def blocks(kind: str) -> list[str]:
    """Return the blocks that are tested in a way."""
    found = [block for page in PAGES for block in BLOCK.findall(page.read_text())]
    return [text for name, text in found if name == kind]
