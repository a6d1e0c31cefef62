"""Names say what a value is: five words that only say how it came about are rare in them."""

import ast

import pytest

from tests import ROOT

WORDS = ("each", "found", "kept", "of", "told")
MOST = 1.5
"""How many of 1,000 names that a package binds may hold one of these words, cut at underscores."""

# The field in which a node of a syntax tree has the name that it binds.
FIELDS = {
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.arg: "arg",
    ast.Name: "id",
    ast.Attribute: "attr",
}


def bound_names(source):
    """Yields each name that a module defines, takes or assigns, and its line."""
    for node in ast.walk(ast.parse(source)):
        is_read = hasattr(node, "ctx") and not isinstance(node.ctx, ast.Store)
        if type(node) in FIELDS and not is_read:
            yield getattr(node, FIELDS[type(node)]), node.lineno


def words(name):
    return name.strip("_").lower().split("_")


def test_what_is_counted():
    source = """
class Kept:
    def told(self, found, *of, **each):
        self.of_steps = found.kept
        for each in of:
            total_found += self.kept(kept=each)
"""
    names = [name for name, _ in bound_names(source)]
    # Neither what is read nor the name of an argument in a call is bound there.
    assert sorted(names) == sorted(
        "Kept told self found of each of_steps each total_found".split()
    )


@pytest.mark.parametrize("package", ["keras_trellis", "trainers"])
def test_names_are_the_fields_own(package):
    count = 0
    places = {word: [] for word in WORDS}
    for path in sorted((ROOT / package).rglob("*.py")):
        for name, line in bound_names(path.read_text(encoding="utf-8")):
            count += 1
            for word in {*words(name)} & places.keys():
                places[word].append(f"{path.relative_to(ROOT)}:{line}: {name}")
    for word, found in places.items():
        assert len(found) <= MOST * count / 1000, "\n".join(
            [
                f"`{word}` in {len(found)} of {count:,} names; CONTRIBUTING, Words:",
                *found,
            ]
        )
