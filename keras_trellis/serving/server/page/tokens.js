// Tokens as the page shows them: { piece, print, word, unknown, nll, rank, likeliest, own }. A piece is
// what a token adds to the text that the model reads, `print` what it adds as in print, and `likeliest`
// lists the pieces that the model expected in its place.

const END = "<eos>"; // of a line
const PRECISE = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const PERCENT = new Intl.NumberFormat("en", { style: "percent", maximumSignificantDigits: 3 });

export const WARMEST = 16; // bits of surprise at which the colour is full
export const bitsOf = (nll) => nll / Math.LN2;
export const precise = (value) => PRECISE.format(value);
export const percent = (logProb) => PERCENT.format(Math.exp(logProb));
export const textOf = (tokens) => tokens.map(({ piece }) => piece).join("");
export const printOf = (tokens) => tokens.map(({ print }) => print).join("");
// How a piece looks without the space before it.
export const shown = (piece, separator) =>
  piece === "\n" ? "↵" : separator && piece.startsWith(separator) ? piece.slice(separator.length) : piece;

const pieceOf = (word, before, separator) =>
  word === END ? "\n" : before === END ? word : separator + word;

// Of an answer of /score; `unknown` counts. A piece that is a part of a character is another text, and known.
export function scored({ tokens, words, printed, nll, ranks, likeliest, unknown }, separator) {
  return words.map((word, index) => {
    const before = index ? tokens[index - 1] : END;
    return {
      piece: pieceOf(word, before, separator),
      print: printed[index],
      word,
      unknown: unknown > 0 && word !== tokens[index],
      nll: nll[index],
      rank: ranks[index],
      likeliest: likeliest[index].map(({ token, log_prob }) =>
        ({ piece: pieceOf(token, before, separator), logProb: log_prob })),
      own: false,
    };
  });
}

// Of a part of a stream.
export function written({ tokens, token_logprobs, top_logprobs, printed }, separator) {
  return tokens.map((piece, index) => {
    // An object has its entries in another order where they are numbers.
    const likeliest = Object.entries(top_logprobs?.[index] ?? {})
      .map(([each, logProb]) => ({ piece: each, logProb })).sort((a, b) => b.logProb - a.logProb);
    const rank = 1 + likeliest.findIndex((each) => each.piece === piece);
    const word = piece === "\n" ? END : shown(piece, separator);
    const nll = -token_logprobs[index];
    return { piece, print: printed[index], word, unknown: false, nll, rank, likeliest, own: true };
  });
}

export function describe({ word, unknown, nll, rank }) {
  const name = JSON.stringify(word);
  const place = rank ? `, number ${rank.toLocaleString("en")} of what the model expected` : "";
  const numbers = `${precise(bitsOf(nll))} bits, ${precise(nll)} nats, ` +
    `probability ${precise(Math.exp(-nll))}${place}`;
  if (unknown) return `${name} is unknown to the model, which reads <unk>; of that, ${numbers}`;
  return `${name}: ${numbers}`;
}
