"""Text of WikiText-103's size and vocabulary, drawn from a Zipf distribution.

    python -m benchmarks.corpus --output=DIR

The text is random; it replaces the real one where only size counts. DIR is a `--data_dir` of
`--task=wikitext103`. The same seed gives the same files.
"""

import sys
from collections.abc import Iterator, Sequence

import numpy as np
from absl import app, flags
from etils import epath

from trainers.data import wikitext
from trainers.tasks.wikitext import WIKITEXT103

FLAGS = flags.FLAGS

_BLOCK = 1 << 20
# Mandelbrot's form, p(r) ~ 1 / (r + q): English text has q of about 2.7.
_SHIFT = 2.7
# The most frequent "words" after `the`, `,` and `.`: a line break in 45 tokens, and `<unk>`.
_LINE_BREAK, _UNKNOWN = 2, 3
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"


def spell(rank: int) -> str:
    """Returns the word of a rank, from 0 on: syllables, more of them for rarer words."""
    syllables = []
    number = rank + 1
    while number:
        number, digit = divmod(number - 1, len(_CONSONANTS) * len(_VOWELS))
        consonant, vowel = divmod(digit, len(_VOWELS))
        syllables.append(_CONSONANTS[consonant] + _VOWELS[vowel])
    return "".join(syllables)


def vocabulary(words: int) -> list[str]:
    """Returns tokens by falling frequency; the line break, which reads `<eos>`, is one of them."""
    tokens = [spell(rank) for rank in range(words)]
    tokens[_LINE_BREAK], tokens[_UNKNOWN] = "\n", "<unk>"
    return tokens


def draw(tokens: int, words: int, seed: int, *, every_word: bool) -> Iterator[np.ndarray]:
    """Yields the ranks of a text's tokens, about a million at a time.

    Args:
        tokens: The length of the text.
        words: The number of ranks.
        seed: Of the text.
        every_word: Whether each rank shall occur; `tokens` must leave room for that.
    """
    random = np.random.default_rng(seed)
    shifted = np.arange(words) + 1 + _SHIFT
    cumulative = np.cumsum(1.0 / shifted)
    missing = np.empty(0, np.int64)
    if every_word:
        missing = random.permutation(words)
    places = tokens - 1  # the last token is a line break
    for start in range(0, tokens, _BLOCK):
        count = min(_BLOCK, tokens - start)
        drawn = random.random(count) * cumulative[-1]
        ranks = np.searchsorted(cumulative, drawn, side="right")
        # Each block has its share of all words, at places of their own.
        stop = min(start + count, places)
        share = missing[words * start // places : words * stop // places]
        chosen = random.choice(count - 1, len(share), replace=False)
        ranks[chosen] = share
        if start + count == tokens:
            ranks[-1] = _LINE_BREAK
        yield ranks


def write(path: epath.Path, blocks: Iterator[np.ndarray], tokens: Sequence[str]) -> None:
    """Writes ranks as text, a space between tokens."""
    with path.open("w") as file:
        for ranks in blocks:
            text = " ".join(map(tokens.__getitem__, ranks.tolist()))
            file.write(text if text.endswith("\n") else text + " ")


def main(argv: Sequence[str]) -> int:
    """Writes the three files; returns the exit status."""
    if len(argv) > 1:
        raise app.UsageError(f"arguments must be flags, --FLAG=VALUE. Received: {argv[1]}")
    if FLAGS.tokens < 2 * FLAGS.words:
        raise app.UsageError(
            f"--tokens must be at least 2 * --words = {2 * FLAGS.words}, so that each word occurs. "
            f"Received: --tokens={FLAGS.tokens}"
        )
    folder = epath.Path(FLAGS.output)
    folder.mkdir(parents=True, exist_ok=True)
    lengths = WIKITEXT103.lengths | {"train": FLAGS.tokens}
    for seed, (split, name) in enumerate(wikitext.FILES.items(), FLAGS.seed):
        blocks = draw(lengths[split], FLAGS.words, seed, every_word=split == "train")
        write(folder / name, blocks, vocabulary(FLAGS.words))
        print(f"{folder / name}: {lengths[split]:,} tokens", flush=True)
    return 0


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("output", None, "The folder to write to.", required=True)
    flags.DEFINE_integer(
        "tokens", WIKITEXT103.lengths["train"], "Of the training text.", lower_bound=1
    )
    flags.DEFINE_integer("words", WIKITEXT103.vocabulary_size, "Different tokens.", lower_bound=4)
    flags.DEFINE_integer("seed", 1, "The three texts take this one and the next two.")


if __name__ == "__main__":
    define_flags()
    sys.exit(app.run(main))
