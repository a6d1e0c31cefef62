"""`tools.mutate`: what it changes of a source, and how a table of mutants is judged."""

import dataclasses

import pytest

from tools import mutate

SOURCE = '''"""A module, whose text is left as it is: 1 < 2."""

LIMIT: int = 3


def above(values, least=0):
    """Returns values above a number; 1."""
    if not values:
        return []
    if least is None and LIMIT:
        raise ValueError(f"{1 + 1}")
    print(values)
    return sorted([value for value in values if value > least], None) + [len("é") - 1]
'''
CHANGES = {
    ("", "one more", "3", "(3 + 1)"),
    ("above", "one more", "0", "(0 + 1)"),
    ("above", "one more", "1", "(1 + 1)"),
    ("above", "not", "not values", "(values)"),
    ("above", "never", "not values", "False"),
    ("above", "never", "least is None and LIMIT", "False"),
    ("above", "and, or", "least is None and LIMIT", "((least is None) or (LIMIT))"),
    ("above", "turned", "least is None", "(least is not None)"),
    ("above", "turned", "value > least", "(value >= least)"),
    ("above", "removed", "print(values)", "pass"),
    ("above", "operator", 'len("é") - 1', '(len("é") + 1)'),
}


def test_the_places_of_a_source():
    found = {
        (place.mutant.scope, place.mutant.kind, place.mutant.before, place.mutant.after)
        for place in mutate.places("a.py", SOURCE)
    }
    sums = {each for each in found if each[2].startswith("sorted")}
    assert found - sums == CHANGES
    assert {kind for _, kind, _, _ in sums} == {"operator", "swapped"}


def test_a_mutant_differs_in_its_place_alone_and_is_found_again_after_other_changes():
    moved = f"# Above it all.\n{SOURCE}"
    for place in mutate.places("a.py", SOURCE):
        changed = mutate.mutated(place.mutant, SOURCE)
        assert changed is not None and changed != SOURCE
        compile(changed, "a.py", "exec")
        assert mutate.mutated(place.mutant, moved) == f"# Above it all.\n{changed}"
        assert mutate.mutated(
            place.mutant, SOURCE.replace("above", "below")
        ) is None or (not place.mutant.scope)


def test_a_seed_draws_the_same_mutants_and_each_has_tests():
    drawn = mutate.drawn(3, 20)
    assert drawn == mutate.drawn(3, 20) != mutate.drawn(4, 20)
    assert len({*drawn}) == 20
    for mutant in drawn:
        tests = mutate.tests_of(mutant.file)
        assert tests and all((mutate.ROOT / test).is_file() for test in tests)


def test_the_tests_that_reach_a_change_try_it_the_shortest_first(monkeypatch, tmp_path):
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text(SOURCE)
    changes = {
        (each.mutant.scope, each.mutant.kind, each.mutant.before): each.mutant
        for each in mutate.places("a.py", SOURCE)
    }
    reached = {
        "tests/a.py::long": [3.0, {"a.py": [8, 12]}],
        "tests/a.py::short": [0.1, {"a.py": [12, 13]}],
        "tests/a.py::other": [0.2, {"b.py": [12]}],
    }
    monkeypatch.setattr(mutate, "tests_of", lambda file: ["tests/a.py", "tests/b.py"])
    removed = changes["above", "removed", "print(values)"]
    tests = ["tests/a.py::short", "tests/a.py::long", "tests/b.py"]
    assert mutate._chosen(removed, reached) == tests
    assert mutate._chosen(changes["", "one more", "3"], reached) == [
        "tests/a.py",
        "tests/b.py",
    ]


@pytest.mark.parametrize(
    ("verdicts", "good"),
    [
        ("kkkkkkkkke", True),
        ("kkkkkkkkee", False),
        ("kkkkkkkkku", False),
        ("kkkkkkkkks", False),
        ("kkkkkkkkkg", False),
        ("kkkkkkkkk ", False),
    ],
)
def test_a_table_is_good_if_each_mutant_is_killed_or_one_of_few_equivalents(
    verdicts, good
):
    mutant = mutate.Mutant("a.py", "f", "not", "not a", "(a)", 0)
    kinds = {
        "k": {"verdict": "killed", "by": "tests/test_a.py::test_f"},
        "e": {"verdict": "equivalent", "by": "a is always true"},
        "u": {"verdict": "equivalent"},
        "s": {"verdict": "survived"},
        "g": {"verdict": "gone"},
        " ": {},
    }
    mutants = [dataclasses.replace(mutant, **kinds[verdict]) for verdict in verdicts]
    assert mutate.is_good(mutants) == good


def test_without_a_table_there_is_a_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(mutate, "TABLE", tmp_path / "mutants.csv")
    assert mutate.main([]) == 2
    assert "--draw" in capsys.readouterr().err
