"""Text of WikiText-103's size and vocabulary, drawn from a Zipf distribution.

    python -m benchmarks.corpus --output=DIR

The text is random; it replaces the real one where only size counts. DIR is a `--data_dir` of
`--task=wikitext103`. The files are always the same.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence

import numpy as np
from absl import app, flags
from etils import epath

from trainers.data import wikitext
from trainers.language.tasks.wikitext import WIKITEXT103

FLAGS = flags.FLAGS

_BLOCK = 1 << 20  # tokens drawn at once
# Mandelbrot's form, p(r) ~ 1 / (r + q): English text has q of about 2.7.
_SHIFT = 2.7
# The most frequent "words" after `the`, `,` and `.`: a line break in 45 tokens, and `<unk>`.
_LINE_BREAK, _UNKNOWN = 2, 3
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"


def spell(rank: int) -> str:
    """Returns the word of a rank, from 0 on: syllables, more of them for rarer words."""
    word = ""
    number = rank + 1
    while number:
        number, digit = divmod(number - 1, len(_CONSONANTS) * len(_VOWELS))
        consonant, vowel = divmod(digit, len(_VOWELS))
        word += _CONSONANTS[consonant] + _VOWELS[vowel]
    return word


def vocabulary(words: int) -> list[str]:
    """Returns tokens by falling frequency; the line break, which reads `<eos>`, is one of them."""
    tokens = [spell(rank) for rank in range(words)]
    tokens[_LINE_BREAK], tokens[_UNKNOWN] = "\n", "<unk>"
    return tokens


def draw(count: int, words: int, seed: int) -> Iterator[np.ndarray]:
    """Yields the ranks of so many tokens, about a million at a time."""
    random = np.random.default_rng(seed)
    cumulative = np.cumsum(1 / (np.arange(words) + 1 + _SHIFT))
    for start in range(0, count, _BLOCK):
        drawn = random.random(min(_BLOCK, count - start))
        yield np.searchsorted(cumulative, drawn * cumulative[-1], side="right")


def write(
    path: epath.Path, blocks: Iterator[np.ndarray], tokens: Sequence[str]
) -> None:
    """Writes ranks as text, a space after each token, and a line break at the end."""
    with path.open("w") as file:
        for ranks in blocks:
            words = [tokens[rank] for rank in ranks.tolist()]
            file.write(" ".join(words) + " ")
        file.write("\n")


def main(argv: Sequence[str]) -> int:
    """Writes the three files; returns the exit status."""
    if len(argv) > 1:
        raise app.UsageError(
            f"arguments must be flags, --FLAG=VALUE. Received: {argv[1]}"
        )
    if FLAGS.tokens <= FLAGS.words:
        raise app.UsageError(
            f"--tokens must be more than --words = {FLAGS.words}, so that each word occurs. "
            f"Received: --tokens={FLAGS.tokens}"
        )
    folder = epath.Path(FLAGS.output)
    folder.mkdir(parents=True, exist_ok=True)
    tokens = vocabulary(FLAGS.words)
    every_word = np.arange(FLAGS.words)
    lengths = WIKITEXT103.lengths | {"train": FLAGS.tokens}
    for seed, (split, name) in enumerate(wikitext.FILES.items(), 1):
        # The training text begins with each word once. The last token is the line break.
        first = every_word if split == "train" else every_word[:0]
        rest = draw(lengths[split] - len(first) - 1, FLAGS.words, seed)
        write(folder / name, itertools.chain([first], rest), tokens)
        print(f"{folder / name}: {lengths[split]:,} tokens", flush=True)
    return 0


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("output", None, "The folder to write to.", required=True)
    flags.DEFINE_integer(
        "tokens", WIKITEXT103.lengths["train"], "Of the training text."
    )
    flags.DEFINE_integer(
        "words", WIKITEXT103.vocabulary_size, "Different tokens.", lower_bound=4
    )


if __name__ == "__main__":
    define_flags()
    sys.exit(app.run(main))
