"""What the rules of BUILD files depend on is what their sources import, and forms no circle."""

import graphlib
import re

from tools import build_files

WRITTEN = build_files.written()


def test_the_files_are_those_that_the_tool_writes():
    other = [path for path, text in WRITTEN.items() if path.read_text() != text]
    assert not other, "python -m tools.build_files"


def test_each_package_and_each_folder_of_tests_has_a_file():
    for top in build_files.FOLDERS:
        sources = "test_*.py" if top == "tests" else "__init__.py"
        folders = {path.parent for path in (build_files.ROOT / top).rglob(sources)}
        assert {folder / "BUILD" for folder in folders} <= WRITTEN.keys()


def test_the_rules_form_no_circle():
    graph = {}
    for path, text in WRITTEN.items():
        for _, rule in build_files.RULE.findall(text):
            deps = re.search(r"deps = \[(.*?)\]", rule, re.DOTALL)
            labels = re.findall('"(//.+)"', deps[1]) if deps else []
            graph[build_files.label(path.parent, rule)] = labels
    assert {label for labels in graph.values() for label in labels} <= graph.keys()
    graphlib.TopologicalSorter(graph).prepare()
