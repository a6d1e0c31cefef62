"""Tests of loading corpora by name; those of real data need the folder of TRELLIS_DATA."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.refusals import refuses
from tests.trainers.data import shared_data
from trainers.data import penn_treebank
from trainers.language import corpora
from trainers.tasks import registry

FILES = {"train.txt": "a b a\n\nc a\n", "valid.txt": "b a\n", "test.txt": "c\nnew a\n"}

needs_ptb = shared_data.needs("ptb")


def _write(folder, files=FILES):
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def ptb(tmp_path_factory):
    return corpora.load(
        "ptb", shared_data.FOLDER / "ptb", tmp_path_factory.mktemp("cache")
    )


@needs_ptb
def test_ptb_counts(ptb):
    assert ptb.vocabulary.size == 10_000
    assert (len(ptb.train), len(ptb.validation), len(ptb.test)) == (
        929_589,
        73_760,
        82_430,
    )


@needs_ptb
@pytest.mark.parametrize("split", list(penn_treebank.FILES))
def test_ptb_keeps_token_order(ptb, split):
    words = (
        (shared_data.FOLDER / "ptb" / penn_treebank.FILES[split])
        .read_text()
        .replace("\n", "<eos>")
        .split()
    )
    assert [ptb.vocabulary.tokens[index] for index in getattr(ptb, split)] == words


@needs_ptb
def test_ptb_vocabulary_is_in_order_of_first_appearance(ptb):
    _, first = np.unique(ptb.train, return_index=True)
    assert len(first) == ptb.vocabulary.size
    assert (np.diff(first) > 0).all()


@needs_ptb
def test_ptb_from_the_cache_alone(tmp_path):
    corpora.load("ptb", shared_data.FOLDER / "ptb", tmp_path)
    assert len(corpora.load("ptb", None, tmp_path).train) == 929_589


@needs_ptb
@pytest.mark.parametrize(
    "form, counts",
    [
        ("mikolov", (5_017_482, 393_042, 442_423)),
        ("paper", (5_059_550, 396_412, 446_184)),
        ("released", (5_101_618, 399_782, 449_945)),
    ],
)
def test_ptb_char_counts(tmp_path, form, counts):
    corpus = corpora.load("ptb_char", shared_data.FOLDER / "ptb", tmp_path, form=form)
    assert corpus.vocabulary.size == 50
    assert tuple(map(len, (corpus.train, corpus.validation, corpus.test))) == counts
    text = (shared_data.FOLDER / "ptb" / "ptb.test.txt").read_text()
    assert corpus.vocabulary.decode(corpus.test).split() == text.split()
    # Rows of published weights follow the order in the released script's text.
    if form != "mikolov":
        first = dict.fromkeys(
            (shared_data.FOLDER / "ptb" / "ptb.train.txt")
            .read_text()
            .replace("\n", "\0")
        )
        assert corpus.vocabulary.decode(range(50)).replace("\n", "\0") == "".join(first)


@pytest.fixture
def treebank(monkeypatch):
    """Stands in for the published files; changing it changes the text."""
    texts = {"train": " a b <unk> \n b \n", "validation": " b a \n", "test": " a \n"}
    monkeypatch.setattr(penn_treebank, "texts", lambda data_dir, prepared_dir: texts)
    return texts


@pytest.mark.parametrize(
    "form, text",
    [
        ("mikolov", "a b <unk>\nb\n"),
        ("paper", " a b <unk>\n b\n"),
        ("released", " a b <unk> \n b \n"),
    ],
)
def test_forms_of_characters(treebank, tmp_path, form, text):
    corpus = corpora.load("ptb_char", None, tmp_path, form=form)
    assert corpus.vocabulary.decode(corpus.train) == text
    assert corpus.vocabulary.unknown_id is None


def test_symbol_that_only_evaluation_text_has(treebank, tmp_path):
    treebank["test"] = " é a \n"
    with refuses("test.txt holds 'é', .*<unk>: --config.corpus.unknown"):
        corpora.load("ptb_char", None, tmp_path)
    corpus = corpora.load("ptb_char", None, tmp_path, unknown=True)
    assert corpus.vocabulary.tokens[-1] == "<unk>"
    assert corpus.test[0] == corpus.vocabulary.unknown_id


def test_text(tmp_path):
    corpus = corpora.load("text", _write(tmp_path), tmp_path / "cache")
    assert corpus.vocabulary.tokens == ("a", "b", "<eos>", "c", "<unk>")
    assert_array_equal(corpus.train, [0, 1, 0, 2, 2, 3, 0, 2])
    assert_array_equal(corpus.test, [3, 2, 4, 0, 2])
    assert corpus.validation.dtype == np.int32


def test_edited_text_is_read_again(tmp_path):
    corpora.load("text", _write(tmp_path), tmp_path / "cache")
    (tmp_path / "valid.txt").write_text("c c c\n")
    corpus = corpora.load("text", tmp_path, tmp_path / "cache")
    assert_array_equal(corpus.validation, [3, 3, 3, 2])


def test_unknown_words_that_training_never_shows(tmp_path, caplog):
    corpora.load("text", _write(tmp_path), tmp_path / "cache")
    assert "1 of 5 test tokens are not in the training text" in caplog.text
    assert "validation tokens" not in caplog.text
    caplog.clear()
    _write(tmp_path, {"train.txt": "a b c <unk>\n"})
    corpora.load("text", tmp_path, tmp_path / "cache")
    assert "not in the training text" not in caplog.text


def test_pydoc(tmp_path):
    corpus = corpora.load("pydoc", cache_dir=tmp_path)
    assert 30_000 < len(corpus.train) < 200_000
    assert 1_000 < corpus.vocabulary.size < 5_000
    for ids in (corpus.train, corpus.validation, corpus.test):
        assert 0 < np.mean(ids == corpus.vocabulary.unknown_id) < 0.12


def test_default_cache_is_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    corpora.load("pydoc")
    assert list((tmp_path / ".cache" / "keras_trellis" / "encoded").iterdir())


def test_ptb_folder_is_checked_even_where_ids_are_cached(tmp_path):
    with refuses("a folder of ptb.train.txt.*is no folder"):
        corpora.load("ptb", tmp_path / "no", tmp_path)


@pytest.mark.parametrize(
    "task, text, tokens",
    [
        ("ptb", "The  N of 1,000.5\nU.S. 30-year", "the N of N <eos> u.s. 30-year"),
        ("pydoc", "Use x.append(3)\nIt's", "use x . append ( N ) <eos> it's"),
        ("text", "As it IS, 3\n", "As it IS, 3 <eos>"),
        ("text", "", ""),
        ("wikitext2", " = It = \n", "= It = <eos>"),
    ],
)
def test_text_of_the_users_has_the_words_of_the_task(task, text, tokens):
    assert registry.get(task).list_tokens(text) == tokens.split()


def test_characters_of_the_users():
    assert registry.get("ptb_char").list_tokens("It 3\nb") == [
        "i",
        "t",
        " ",
        "N",
        "<eos>",
        "b",
    ]
