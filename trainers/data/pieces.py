"""Vocabularies of pieces of words, which know every text: learned, read and cut.

`keras_trellis.formats.pieces` says what a piece is, and how a text is cut. The package `tokenizers`
learns a vocabulary, by byte-pair encoding (Sennrich, Haddow and Birch 2016): from single bytes on,
it joins the two neighbours that are most often side by side. It also cuts a corpus, as it is fast.
No piece goes beyond a word and the spaces before it, a number and the spaces before it, or a run of
signs and the spaces before it. Where one of these begins is seen from two neighbouring bytes. So no
piece of the vocabulary has such a place within it, and a text is cut alike with `SPLIT` or without.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from keras_trellis.formats.pieces import CHARACTERS, LINE_BREAK, Pieces, read_names
from trainers.data.vocabulary import EOS, Vocabulary

LEAST, USUAL = 0x100, 2000
"""How many pieces a vocabulary has: one for each byte, and unless a config says another number."""

_WORD = "A-Za-z_\u0080-\U0010ffff"
SPLIT = rf" *(?:[{_WORD}]+|[0-9]+|[^\n 0-9{_WORD}]+)| +|\n"
"""Words, numbers, runs of signs, and line breaks: as RE2, Python and `tokenizers` read it."""

Blocks = Callable[[], Iterator[str]]
"""Returns the blocks of a text, from its beginning."""


class PieceVocabulary(Vocabulary):
    """The names of pieces of words; `<eos>` is the line break, and there is no `<unk>`."""

    def __init__(self, tokens: Iterable[str]):
        super().__init__(tokens)
        self.pieces = tuple(read_names(self.tokens, EOS))

    @functools.cached_property
    def _cutter(self) -> Pieces:
        return Pieces(self.pieces)

    def read(self, text: str) -> np.ndarray:
        """Returns the int32 ids of a text."""
        return np.array(self._cutter.cut(text.encode()), np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; bytes that are no UTF-8 read U+FFFD."""
        return self._cutter.join(self.checked(ids)).decode(errors="replace")


def learn(blocks: Blocks, size: int) -> PieceVocabulary:
    """Returns the vocabulary of a training text, the most frequent pieces first.

    Args:
        blocks: of the text, each of whole lines, or up to a space.
        size: the number of pieces, at least `LEAST`; a small text may have fewer.

    Raises:
        ImportError: the package `tokenizers` is not installed.
    """
    tokenizers = _package()
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = _split(tokenizers)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=sorted(CHARACTERS.values()),
        show_progress=False,
    )
    model.train_from_iterator(blocks(), trainer)
    ids = model.get_vocab()
    names = sorted(ids, key=ids.__getitem__)
    line_break = names.index(CHARACTERS[LINE_BREAK])
    names[line_break] = EOS
    cut = cutter(PieceVocabulary(names))
    counts = sum(np.bincount(cut(block), minlength=len(names)) for block in blocks())
    order = np.argsort(-np.asarray(counts), kind="stable")
    return PieceVocabulary(names[index] for index in order)


def cutter(vocabulary: PieceVocabulary) -> Callable[[str], np.ndarray]:
    """Returns the function from a text to its int32 ids, by the package `tokenizers`.

    Raises:
        ImportError: it is not installed.
    """
    tokenizers = _package()
    names = {name: index for index, name in enumerate(vocabulary.tokens)}
    names[CHARACTERS[LINE_BREAK]] = names.pop(EOS)
    # Its `WordPiece` takes the longest piece of the vocabulary each time, as BERT does.
    model = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            vocab=names,
            unk_token=CHARACTERS[LINE_BREAK],  # it has to be one, and none is unknown
            continuing_subword_prefix="",
            max_input_chars_per_word=2**31 - 1,
        )
    )
    model.pre_tokenizer = _split(tokenizers)
    return lambda text: np.array(model.encode(text).ids, np.int32)


def _split(tokenizers: ModuleType) -> Any:
    """Returns what cuts words, numbers and runs of signs, and names their bytes."""
    by = tokenizers.pre_tokenizers
    words = by.Split(tokenizers.Regex(SPLIT), behavior="isolated")
    names = by.ByteLevel(add_prefix_space=False, use_regex=False)
    return by.Sequence([words, names])


def _package() -> ModuleType:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            "config.data.tokens='pieces' needs the package tokenizers, of the extra `trainers`: "
            f"pip install '.[trainers]' ({error})"
        ) from error
    return tokenizers
