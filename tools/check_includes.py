#!/usr/bin/env python3
"""Checks the include rule of the house: a file of the library includes only its own floor and those below.

Usage: tools/check_includes.py [ROOT]. Prints one line `file:line: text` for each break and exits with 1 when
there is any. ROOT is the repository (default: where this script's folder is).
"""

import pathlib
import re
import sys

FLOORS = {
    "base": 0,
    "tensor": 1,
    "ops": 2,
    "io": 2,
    "text": 2,
    "model": 3,
    "data": 3,
    "train": 4,
    "generate": 4,
    "eval": 5,
    "serve": 5,
    "inspect": 5,
    "cli": 6,
}

LIBRARY = "dcformer"
SUFFIXES = {".h", ".cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def floor_of(path):
    """The floor of a path like `dcformer/ops/linear.h`, or None when it stands on none."""
    parts = path.split("/")
    if len(parts) < 3 or parts[0] != LIBRARY:
        return None
    return FLOORS.get(parts[1])


def check_include(root, own_floor, bracket, target):
    """What is wrong with one include in a file of floor `own_floor`, or None."""
    if bracket == "<":
        if target.startswith(LIBRARY + "/"):
            return f"<{target}>: the library's own files are included with quotes"
        return None
    if not target.startswith(LIBRARY + "/"):
        return f'"{target}": include paths start at {LIBRARY}/'
    floor = floor_of(target)
    if floor is None:
        return f'"{target}" stands on no floor'
    if not (root / target).is_file():
        return f'"{target}" does not exist'
    if floor > own_floor:
        return f'"{target}" is on floor {floor}, above this file\'s floor {own_floor}'
    return None


def check_tree(root):
    """All breaks of the rule below `root`, as lines of text."""
    breaks = []
    for file in sorted((root / LIBRARY).rglob("*")):
        if file.suffix not in SUFFIXES or not file.is_file():
            continue
        path = file.relative_to(root).as_posix()
        floor = floor_of(path)
        if floor is None:
            breaks.append(f"{path}:1: stands on no floor")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            match = INCLUDE.match(line)
            if match:
                text = check_include(root, floor, match.group(1), match.group(2))
                if text:
                    breaks.append(f"{path}:{number}: {text}")
    return breaks


def main(arguments):
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    if not (root / LIBRARY).is_dir():
        print(f"error: {root} has no folder {LIBRARY}", file=sys.stderr)
        return 2
    breaks = check_tree(root)
    for text in breaks:
        print(text)
    return 1 if breaks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
