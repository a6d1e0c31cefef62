"""Answers of the API: rows as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from keras_trellis.formats.tokenizer import Tokenizer
from keras_trellis.serving.rows import Compared, Outcome, Row, Token
from keras_trellis.serving.server.schemas import CompletionRequest
from keras_trellis.serving.server.service import Prompt, Work

Json = dict[str, Any]

_LONG_LINE = 1000
"""So many characters, or tokens, of a line decide how what comes next stands in print."""

_REASONS = {
    Outcome.STOP: "stop",
    Outcome.LENGTH: "length",
    Outcome.READ: "length",
}


class Choice:
    """One of the texts of a completion, which may be sent in parts.

    Args:
        index: its place among the texts.
        row: what writes it.
        prompt: what it continues.
        request: what was asked.
        tokenizer: the model's tokens.
    """

    def __init__(
        self,
        index: int,
        row: Row,
        prompt: Prompt,
        request: CompletionRequest,
        tokenizer: Tokenizer,
    ) -> None:
        self._index = index
        self._row = row
        self._prompt = prompt
        self._request = request
        self._tokenizer = tokenizer
        self._sent = 0  # tokens
        self._length = 0  # of their text
        self._offset = 0  # of the text of all tokens, the prompt's included
        # The tokens of the line that the next one continues.
        self._line = _last_line(pieces(tokenizer, prompt))
        self._printed = Printed(tokenizer, "".join(self._line))
        self._begun = not request.echo
        # The token before the next one of the answer.
        self._last = int(prompt.ids[0] if request.echo else prompt.ids[-1])
        self.has_ended = False

    def part(self) -> Json | None:
        """Returns what there is to send beside what has been sent; None if nothing."""
        if self.has_ended:
            return None
        outcome = self._row.outcome
        if not self._begun and not (self._row.is_read or outcome):
            return None
        tokens = self._released(is_last=outcome is not None)
        text = "".join(token.text for token in tokens)
        if outcome is not None:
            self.has_ended = True
            text = self._row.text[self._length :]
        self._sent += len(tokens)
        self._length += len(text)
        printed = self._printed.add(text, is_last=self.has_ended)
        logprobs = self._logprobs(tokens)
        if not self._begun:
            self._begun = True
            text = self._prompt.text + text
            printed = self._prompt.text + printed
        elif not tokens and outcome is None:
            return None
        return {
            "index": self._index,
            "text": text,
            "printed": printed,
            "logprobs": logprobs,
            "finish_reason": None if outcome is None else _REASONS[outcome],
        }

    def _released(self, is_last: bool) -> Sequence[Token]:
        """Returns the next tokens whose text is in the answer, whatever comes."""
        tokens = self._row.written[self._sent :]
        if is_last or not self._request.stop:
            return tokens
        text = "".join(token.text for token in tokens)
        free = len(text) - _begun_stop(text, self._request.stop)
        end = 0
        for count, token in enumerate(tokens):
            end += len(token.text)
            if end > free:
                return tokens[:count]
        return tokens

    def _logprobs(self, tokens: Sequence[Token]) -> Json | None:
        if self._request.logprobs is None:
            return None
        answer: Json = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [] if self._request.logprobs else None,
            "text_offset": [],
            "printed": [],
        }
        tokenizer = self._tokenizer
        read = [] if self._begun else self._read_tokens()
        for token in (*read, *tokens):
            answer["tokens"].append(token.text)
            answer["token_logprobs"].append(token.log_prob)
            answer["text_offset"].append(self._offset)
            if answer["top_logprobs"] is not None:
                pairs = zip(token.likeliest_ids, token.likeliest_log_probs, strict=True)
                best = {tokenizer.piece(self._last, i): value for i, value in pairs}
                answer["top_logprobs"].append(best)
            self._offset += len(token.text)
            self._last = token.token_id
        answer["printed"] += tokenizer.printed([token.text for token in read])
        line = [*self._line, *(token.text for token in tokens)]
        answer["printed"] += tokenizer.printed(line)[len(self._line) :]
        self._line = _last_line(line)[-_LONG_LINE:]
        return answer

    def _read_tokens(self) -> list[Token]:
        """Returns the prompt's tokens as those that are written."""
        compared = self._row.all_compared()
        columns = zip(
            self._prompt.ids[1:].tolist(),
            pieces(self._tokenizer, self._prompt),
            compared.log_probs.tolist(),
            compared.likeliest_ids.tolist(),
            compared.likeliest_log_probs.tolist(),
            strict=True,
        )
        return [*itertools.starmap(Token, columns)]


class Printed:
    """A text in print that grows.

    Args:
        tokenizer: whose tokens it is made of.
        line: what is there of the line that it continues.
    """

    def __init__(self, tokenizer: Tokenizer, line: str) -> None:
        self._tokenizer = tokenizer
        self._line = line[-_LONG_LINE:]
        # Of the line in print, as far as it has been returned.
        self._length = len(tokenizer.in_print(self._line))

    def add(self, text: str, is_last: bool) -> str:
        """Returns what a text adds in print; what is not settled yet waits for the next text."""
        self._line += text
        printed = self._tokenizer.in_print(self._line)
        if not is_last:
            printed = self._tokenizer.settled(printed)
        added = printed[self._length :]
        self._length = max(self._length, len(printed))
        if "\n" in self._line:  # what is before it changes nothing after it
            self._length -= printed.rfind("\n") + 1
            self._line = self._line.rpartition("\n")[2]
        if len(self._line) > _LONG_LINE:
            self._line = self._line[-_LONG_LINE // 2 :].partition(" ")[2]
            printed = self._tokenizer.in_print(self._line)
            self._length = len(self._tokenizer.settled(printed))
        return added


def choices(work: Work, request: CompletionRequest) -> list[Choice]:
    """Returns the texts of a completion."""
    return [
        Choice(
            index,
            row,
            work.prompts[index // request.n],
            request,
            work.served.model.tokenizer,
        )
        for index, row in enumerate(work.rows)
    ]


def usage(work: Work) -> Json:
    """Returns how many tokens a request has."""
    read = sum(len(prompt.ids) - 1 for prompt in work.prompts)
    written = sum(len(row.written) for row in work.rows)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }


def pieces(tokenizer: Tokenizer, prompt: Prompt) -> list[str]:
    """Returns what each token adds to a text, in the text's own words."""
    ids, end = prompt.ids.tolist(), tokenizer.eos_id
    texts = []
    for before, index, word in zip(ids[:-1], ids[1:], prompt.words, strict=True):
        separator = "" if before == end else tokenizer.separator
        texts.append("\n" if index == end else f"{separator}{word}")
    return texts


def scores(work: Work) -> list[Json]:
    """Returns how probable each text is."""
    tokenizer = work.served.model.tokenizer
    pairs = zip(work.rows, work.prompts, strict=True)
    return [_score(tokenizer, prompt, row.all_compared()) for row, prompt in pairs]


def _score(tokenizer: Tokenizer, prompt: Prompt, compared: Compared) -> Json:
    nll = -compared.log_probs.astype("float64")
    best = zip(
        compared.likeliest_ids.tolist(),
        compared.likeliest_log_probs.tolist(),
        strict=True,
    )
    return {
        "tokens": [tokenizer.tokens[index] for index in prompt.ids[1:]],
        "words": prompt.words,
        "printed": tokenizer.printed(pieces(tokenizer, prompt)),
        "nll": nll.tolist(),
        "ranks": compared.ranks.tolist(),
        "likeliest": [likeliest(tokenizer, *pair) for pair in best],
        "total": float(nll.sum()),
        "count": len(nll),
        "unknown": prompt.unknown,
    }


def likeliest(
    tokenizer: Tokenizer, ids: Sequence[int], log_probs: Sequence[float]
) -> list[Json]:
    """Returns the most probable tokens of a place."""
    return [
        {"token": tokenizer.tokens[index], "log_prob": float(value)}
        for index, value in zip(ids, log_probs, strict=True)
    ]


def _last_line(texts: Sequence[str]) -> Sequence[str]:
    """Returns those of the texts of tokens that stand after the last line break."""
    for place in range(len(texts), 0, -1):
        if "\n" in texts[place - 1]:
            return texts[place:]
    return texts


def _begun_stop(text: str, stops: Sequence[str]) -> int:
    """Returns how many of the last characters may be the beginning of a stop text."""
    longest = max(map(len, stops)) - 1
    for length in range(min(longest, len(text)), 0, -1):
        end = text[-length:]
        if any(stop.startswith(end) for stop in stops):
            return length
    return 0
