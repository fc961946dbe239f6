"""Small is the norm: no module over 400 lines, no function over 60, a docstring on every module."""

from __future__ import annotations

import ast

from tests.house.tree import ROOMS, functions, modules

MODULE_LINES = 400
FUNCTION_LINES = 60


def test_no_module_is_over_400_lines() -> None:
    long = {path: lines for path, _, lines in modules(*ROOMS, "tests") if lines > MODULE_LINES}
    assert not long


def test_no_function_is_over_60_lines() -> None:
    long = {
        f"{path}:{node.lineno} {node.name}": size
        for path, tree, _ in modules(*ROOMS, "tests")
        for node in functions(tree)
        if (size := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    }
    assert not long


def test_every_module_says_why_it_exists() -> None:
    silent = [path for path, tree, lines in modules(*ROOMS) if lines and not ast.get_docstring(tree)]
    assert not silent


def test_every_class_has_a_docstring() -> None:
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree, _ in modules(*ROOMS)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert not silent


def test_everything_is_annotated() -> None:
    bare = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree, _ in modules(*ROOMS, "tests")
        for node in functions(tree)
        if node.returns is None
    ]
    assert not bare
